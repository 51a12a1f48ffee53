package loopback

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/gccl/gccl/rdma"
)

// Device is one rank's device. It implements rdma.BellDevice.
type Device struct {
	net       *Network
	number    int
	attr      rdma.Attr
	loadStore bool
	bell      *bell

	// mu is held for reading while a peer's write is copied into a region, so that whoever holds it
	// for writing may invalidate regions.
	mu        sync.RWMutex
	closed    bool
	regions   map[uint64]*region // by key
	endpoints map[*endpoint]struct{}
	queues    map[*queue]struct{}
	nextAddr  uint64
	nextID    uint32
}

var _ rdma.BellDevice = (*Device)(nil)

// Attr describes the device.
func (d *Device) Attr() rdma.Attr { return d.attr }

// Bell returns the device's bell, which is always the same.
func (d *Device) Bell() rdma.Bell { return d.bell }

func (d *Device) String() string { return fmt.Sprintf("loopback device %d", d.number) }

// closedError is returned by everything that is called after Close.
func (d *Device) closedError() error { return fmt.Errorf("%w: %v", rdma.ErrClosed, d) }

// Alloc returns a region of n zeroed bytes. It lies on the Go heap, unlike those of other providers,
// so that the race detector watches it.
func (d *Device) Alloc(n int, purpose string) (rdma.Region, error) {
	if n <= 0 {
		return nil, fmt.Errorf("loopback: alloc %q: %d bytes", purpose, n)
	}
	return d.newRegion(pages(n), purpose)
}

// Register makes b a region. The region keeps b alive; nothing in this process moves it.
func (d *Device) Register(b []byte) (rdma.Region, error) {
	if len(b) == 0 {
		return nil, errors.New("loopback: register: no bytes")
	}
	return d.newRegion(b[:len(b):len(b)], "registered")
}

func (d *Device) newRegion(b []byte, purpose string) (rdma.Region, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.closedError()
	}
	r := &region{dev: d, bytes: b, purpose: purpose, addr: d.nextAddr, open: true}
	for r.key = randomKey(); d.regions[r.key] != nil; r.key = randomKey() {
	}
	// One page stays unused between two regions, so that a range cannot span them.
	d.nextAddr += (uint64(len(b))+pageSize-1)/pageSize*pageSize + pageSize
	d.regions[r.key] = r
	return r, nil
}

// NewCQ makes a queue. It fails when it is given more than depth completions ("overrun"), those of
// failed writes not counted.
func (d *Device) NewCQ(depth int, ring func()) (rdma.CQ, error) {
	if depth <= 0 {
		return nil, fmt.Errorf("loopback: completion queue of depth %d", depth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.closedError()
	}
	q := &queue{dev: d, depth: depth, ringFunc: ring}
	d.queues[q] = struct{}{}
	return q, nil
}

// NewEndpoint makes an endpoint on a queue of the same device.
func (d *Device) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	q, ok := cq.(*queue)
	if !ok || q.dev != d {
		return nil, fmt.Errorf("loopback: %v: the completion queue is not of this device", d)
	}
	if opts.RecvDepth < 0 {
		return nil, fmt.Errorf("loopback: %v: receive depth %d", d, opts.RecvDepth)
	}
	if opts.RecvDepth == 0 {
		opts.RecvDepth = 64
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.closedError()
	}
	if _, open := d.queues[q]; !open {
		return nil, fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	d.nextID++
	e := &endpoint{dev: d, id: d.nextID, cq: q, opts: opts}
	d.net.announce(e)
	d.endpoints[e] = struct{}{}
	if d.loadStore {
		return mapped{e}, nil
	}
	return e, nil
}

// Close invalidates the regions and closes the queues and the endpoints, whose peers learn that the
// device was closed.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	endpoints, queues := d.endpoints, d.queues
	d.endpoints, d.queues = nil, nil
	d.mu.Unlock()
	for e := range endpoints {
		e.shut(fmt.Sprintf("%v closed", d))
	}
	for q := range queues {
		q.shut()
	}
	// Last, so that what a peer sees is a lost peer and not a missing region.
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.regions {
		r.open = false
	}
	clear(d.regions)
	return nil
}

// region is registered memory. Its range in the owner's address space is [addr, addr+len(bytes)).
type region struct {
	dev     *Device
	bytes   []byte
	purpose string
	addr    uint64
	key     uint64
	open    bool // guarded by dev.mu
}

func (r *region) Bytes() []byte { return r.bytes }

func (r *region) Remote() rdma.RemoteRegion {
	return rdma.RemoteRegion{Addr: r.addr, Key: r.key, Len: uint64(len(r.bytes))}
}

// Close returns when no peer's write into the region is under way.
func (r *region) Close() error {
	r.dev.mu.Lock()
	defer r.dev.mu.Unlock()
	r.open = false
	delete(r.dev.regions, r.key)
	return nil
}

// find returns the n bytes at offset in what rr describes, or an ErrAccess. d.mu is held.
func (d *Device) findLocked(rr rdma.RemoteRegion, offset uint64, n int) ([]byte, error) {
	r, ok := d.regions[rr.Key]
	if !ok {
		return nil, fmt.Errorf("%w: %v has no region with this key", rdma.ErrAccess, d)
	}
	size, length := uint64(len(r.bytes)), uint64(n)
	if offset > rr.Len || length > rr.Len-offset {
		return nil, fmt.Errorf("%w: bytes [%d, +%d) of a region described as %d long", rdma.ErrAccess, offset, n, rr.Len)
	}
	// The description may name a part of the region; it must not reach beyond it.
	base := rr.Addr - r.addr
	if rr.Addr < r.addr || base > size || rr.Len > size-base {
		return nil, fmt.Errorf("%w: [%d, +%d) is not inside region %q of %v at [%d, +%d)",
			rdma.ErrAccess, rr.Addr, rr.Len, r.purpose, d, r.addr, size)
	}
	at := base + offset
	return r.bytes[at : at+length : at+length], nil
}

// randomKey returns an unguessable number that is not 0.
func randomKey() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand.Read
		if k := binary.LittleEndian.Uint64(b[:]); k != 0 {
			return k
		}
	}
}

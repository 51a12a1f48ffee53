//go:build linux

package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"go.uber.org/zap"
)

const (
	maxMessage = 1 << 30 // as on verbs devices; the executor's segments are far shorter
	maxPosted  = 1024    // local completions that an endpoint holds
	maxInline  = 64 << 10
	maxCQDepth = 1 << 24
)

// Options has a usable zero value.
type Options struct {
	// Logger hears of connections and refused strangers. Nil: silence.
	Logger *zap.Logger
}

var _ rdma.BellDevice = (*Device)(nil)

// Device is one rank's access to shared memory. Its methods may be called from any goroutine.
type Device struct {
	log      *zap.Logger
	name     name
	host     host
	listener *net.UnixListener
	bellMem  *hostmem.Block
	bellUse  lease // of bellMem
	ringer   ringer
	bell     bell
	fenced   bool // by the Arm of peers' bells

	strangers atomic.Uint64 // connections dropped: another user id, not the protocol, or not an endpoint's token

	mu        sync.Mutex // guards what follows
	closed    bool
	lastID    uint32
	regions   map[uint64]*region    // by key
	endpoints map[uint32]*Endpoint  // by id
	queues    map[*queue]struct{}   // open
	conns     map[*conn]struct{}    // accepted, open
	mappings  map[mapKey]*remoteMap // of peers' regions
}

// New makes a device. It fails with rdma.ErrUnavailable where memory or sockets cannot be shared.
func New(opts Options) (*Device, error) {
	d := &Device{
		log:       opts.Logger,
		host:      thisHost(),
		regions:   make(map[uint64]*region),
		endpoints: make(map[uint32]*Endpoint),
		queues:    make(map[*queue]struct{}),
		conns:     make(map[*conn]struct{}),
		mappings:  make(map[mapKey]*remoteMap),
	}
	if d.log == nil {
		d.log = zap.NewNop()
	}
	rand.Read(d.name[:]) // never fails: it ends the program instead
	mem, err := hostmem.AllocShared(bellBytes, bellPurpose)
	if err != nil {
		return nil, fmt.Errorf("shm: %w: %w", rdma.ErrUnavailable, err)
	}
	d.bellMem = mem
	d.ringer = newRinger(mem.Bytes())
	d.bellUse.free = func() { _ = mem.Close() }
	d.bell = bell{dev: d}
	d.fenced = cpu.ReceiveFences()
	d.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: d.name.path(), Net: "unixpacket"})
	if err != nil {
		_ = mem.Close()
		return nil, fmt.Errorf("shm: %w: %w", rdma.ErrUnavailable, err)
	}
	go d.accept()
	return d, nil
}

// Attr implements rdma.Device. Latency and bandwidth are of two cores of one server (AMD Zen 4):
// 0.1 µs from store to load between spinning processes, 10 GB/s for a copy beyond the caches.
func (d *Device) Attr() rdma.Attr {
	return rdma.Attr{
		Provider: "shm", Name: "memfd",
		Latency: 100 * time.Nanosecond, Bandwidth: 10e9,
		MaxMessage: maxMessage, MaxPosted: maxPosted, MaxInline: maxInline,
		LazySignal: d.fenced,
	}
}

// Bell implements rdma.BellDevice. It is the same bell each time.
func (d *Device) Bell() rdma.Bell { return &d.bell }

// NewCQ implements rdma.Device. The queue has room for all its endpoints' completions, whatever depth.
func (d *Device) NewCQ(depth int, ring func()) (rdma.CQ, error) {
	if depth < 1 || depth > maxCQDepth {
		return nil, fmt.Errorf("shm: completion queue of depth %d, want 1 to %d", depth, maxCQDepth)
	}
	q := &queue{dev: d, ring: ring}
	q.endpoints.Store(new([]*Endpoint))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDeviceClosed
	}
	d.queues[q] = struct{}{}
	return q, nil
}

// NewEndpoint implements rdma.Device.
func (d *Device) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	q, ok := cq.(*queue)
	if !ok || q.dev != d {
		return nil, errors.New("shm: the completion queue is not of this device")
	}
	if opts.RecvDepth == 0 {
		opts.RecvDepth = 64
	}
	if opts.RecvDepth < 0 || opts.RecvDepth > maxRecvDepth {
		return nil, fmt.Errorf("shm: receive depth %d, want 1 to %d", opts.RecvDepth, maxRecvDepth)
	}
	in, err := newInbox(opts.RecvDepth)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	e := newEndpoint(d, q, in, opts.OnLost)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || q.closed.Load() {
		_ = in.mem.Close()
		return nil, fmt.Errorf("shm: new endpoint: %w", rdma.ErrClosed)
	}
	d.lastID++
	e.id = d.lastID
	d.endpoints[e.id] = e
	q.add(e)
	return e, nil
}

var errDeviceClosed = fmt.Errorf("shm: device %w", rdma.ErrClosed)

// Close implements rdma.Device: it closes the endpoints, queues and regions. The memory of regions
// and of mapped peers' regions is gone afterwards.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	endpoints, queues, regions, conns := d.endpoints, d.queues, d.regions, d.conns
	d.endpoints, d.queues, d.regions, d.conns = nil, nil, nil, nil
	d.mu.Unlock()

	err := d.listener.Close()
	for _, e := range endpoints {
		err = errors.Join(err, e.Close())
	}
	for q := range queues {
		err = errors.Join(err, q.Close())
	}
	for _, e := range endpoints {
		e.awaitUsers() // a Post may be copying from one of the regions
	}
	for c := range conns {
		c.close()
	}
	for _, r := range regions {
		err = errors.Join(err, r.Close())
	}
	d.ring() // sleepers find the device closed
	d.bellUse.close()
	return err
}

func randomKey() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if key := binary.LittleEndian.Uint64(b[:]); key != 0 { // 0 means: cannot be written
			return key
		}
	}
}

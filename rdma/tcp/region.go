//go:build linux

package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// region is registered memory. Its addresses count from 0.
type region struct {
	dev     *device
	bytes   []byte
	purpose string
	size    uint64 // len(bytes) while open
	key     uint64

	// landing is held for reading while bytes from the network are stored, so that Close returns
	// when nothing touches the memory any more.
	landing sync.RWMutex
	closed  atomic.Bool // written under landing

	detours detours

	block  *hostmem.Block // Alloc
	pinner runtime.Pinner // Register
}

// Alloc returns memory of its own pages, see hostmem.
func (d *device) Alloc(n int, purpose string) (rdma.Region, error) {
	return d.alloc(n, purpose, hostmem.Alloc)
}

// AllocSparse implements rdma.SparseDevice.
func (d *device) AllocSparse(n int, purpose string) (rdma.Region, error) {
	return d.alloc(n, purpose, hostmem.Reserve)
}

func (d *device) alloc(n int, purpose string, get func(int, string) (*hostmem.Block, error)) (rdma.Region, error) {
	if n <= 0 {
		return nil, fmt.Errorf("tcp: alloc %q: %d bytes", purpose, n)
	}
	block, err := get(n, purpose)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	r := &region{dev: d, bytes: block.Bytes(), size: uint64(n), purpose: purpose, block: block}
	if err := d.regions.add(r); err != nil {
		_ = block.Close()
		return nil, err
	}
	return r, nil
}

// Register pins b.
func (d *device) Register(b []byte) (rdma.Region, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("tcp: register: no bytes")
	}
	r := &region{dev: d, bytes: b[:len(b):len(b)], size: uint64(len(b)), purpose: "registered"}
	r.pinner.Pin(&b[0])
	if err := d.regions.add(r); err != nil {
		r.pinner.Unpin()
		return nil, err
	}
	return r, nil
}

func (r *region) Bytes() []byte { return r.bytes }

func (r *region) Remote() rdma.RemoteRegion {
	return rdma.RemoteRegion{Key: r.key, Len: r.size}
}

// Close returns when no byte from the network is being stored any more. A write that is half there
// is refused then.
func (r *region) Close() error {
	r.dev.regions.remove(r)
	r.landing.Lock()
	defer r.landing.Unlock()
	if r.closed.Swap(true) {
		return nil
	}
	r.pinner.Unpin()
	if r.block == nil {
		return nil
	}
	if err := r.block.Close(); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	return nil
}

// gone is why a write that is half there cannot go on.
func (r *region) gone() error {
	return fmt.Errorf("%w: region %q was closed during the write", rdma.ErrAccess, r.purpose)
}

// regionTable finds regions by key.
type regionTable struct {
	mu     sync.RWMutex
	byKey  map[uint64]*region
	closed bool
}

// add gives r a key.
func (t *regionTable) add(r *region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errDeviceClosed
	}
	for r.key == 0 || t.byKey[r.key] != nil {
		r.key = randomKey()
	}
	if t.byKey == nil {
		t.byKey = map[uint64]*region{}
	}
	t.byKey[r.key] = r
	return nil
}

func (t *regionTable) remove(r *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byKey[r.key] == r {
		delete(t.byKey, r.key)
	}
}

// close returns the regions that were still open; no more can be added.
func (t *regionTable) close() []*region {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var open []*region
	for _, r := range t.byKey {
		open = append(open, r)
	}
	return open
}

// find returns the region that holds length bytes at addr, or an ErrAccess. All three come from the
// network.
func (t *regionTable) find(key, addr, length uint64) (*region, error) {
	t.mu.RLock()
	r := t.byKey[key]
	t.mu.RUnlock()
	if r == nil {
		return nil, fmt.Errorf("%w: no region with this key", rdma.ErrAccess)
	}

	size := r.size
	if addr > size || length > size-addr {
		return nil, fmt.Errorf("%w: bytes [%d, +%d) of region %q, which has %d", rdma.ErrAccess, addr, length, r.purpose, size)
	}
	return r, nil
}

// randomKey returns an unguessable number.
func randomKey() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return binary.LittleEndian.Uint64(b[:])
}

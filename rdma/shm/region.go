//go:build linux

package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// The memory file of a region holds its bytes, then, on a page of its own, one word that is not zero
// once the owner has closed the region: a writer looks at it before each write.
func regionFileBytes(n int) (state, total int) {
	state = (n + hostmem.PageSize - 1) / hostmem.PageSize * hostmem.PageSize
	return state, state + hostmem.PageSize
}

// region is memory of this process, registered.
type region struct {
	dev    *Device
	b      []byte
	closed atomic.Bool

	// Of allocated regions; nil and 0 for the caller's own memory, which peers cannot map.
	mem   *hostmem.Block
	state *atomic.Uint64
	key   uint64
}

// Alloc implements rdma.Device: shared memory, with huge pages where the kernel gives them to memory
// files (/sys/kernel/mm/transparent_hugepage/shmem_enabled).
func (d *Device) Alloc(n int, purpose string) (rdma.Region, error) {
	return d.alloc(n, purpose, hostmem.AllocShared)
}

// AllocSparse implements rdma.SparseDevice.
func (d *Device) AllocSparse(n int, purpose string) (rdma.Region, error) {
	return d.alloc(n, purpose, hostmem.ReserveShared)
}

func (d *Device) alloc(n int, purpose string, get func(int, string) (*hostmem.Block, error)) (rdma.Region, error) {
	if n < 0 || n > 1<<46 {
		return nil, fmt.Errorf("shm: region of %d bytes is impossible", n)
	}
	state, total := regionFileBytes(n)
	mem, err := get(total, purpose)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	b := mem.Bytes()
	r := &region{dev: d, b: b[:n:n], mem: mem, state: hostmem.Word64(b, state)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = mem.Close()
		return nil, errDeviceClosed
	}
	for r.key == 0 || d.regions[r.key] != nil {
		r.key = randomKey()
	}
	d.regions[r.key] = r
	return r, nil
}

// Register implements rdma.Device. The region serves as Local of writes only: memory that is not
// from Alloc cannot be mapped by other processes, so Remote().Key is 0. Nothing needs pinning, since
// all copying is done by Post.
func (d *Device) Register(b []byte) (rdma.Region, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDeviceClosed
	}
	return &region{dev: d, b: b}, nil
}

// Bytes implements rdma.Region.
func (r *region) Bytes() []byte {
	if r.closed.Load() {
		return nil
	}
	return r.b
}

// Remote implements rdma.Region. Addresses count from the start of each region.
func (r *region) Remote() rdma.RemoteRegion {
	return rdma.RemoteRegion{Key: r.key, Len: uint64(len(r.b))}
}

// Close implements rdma.Region. Peers that have the region mapped keep pages that belong to nobody
// else, and find it closed at their next write.
func (r *region) Close() error {
	if r.closed.Swap(true) || r.mem == nil {
		return nil
	}
	r.dev.mu.Lock()
	delete(r.dev.regions, r.key)
	r.dev.mu.Unlock()
	r.state.Store(1)
	return r.mem.Close()
}

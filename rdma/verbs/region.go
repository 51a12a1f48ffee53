package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// span is an address range.
type span struct {
	addr uintptr
	n    int
}

// registration is a range that the card may use. Regions of the same range share one, because pinning
// pages costs microseconds to milliseconds. None outlives its last region: a key that still worked then
// would let peers write to memory that Go has given to somebody else.
type registration struct {
	span   span
	mr     *ibv.MR
	block  *hostmem.Block // Alloc's memory
	pinner runtime.Pinner // Register's
	users  int            // regions; guarded by Device.mu
}

// region is one user's hold of a registration.
type region struct {
	dev    *Device
	bytes  []byte
	reg    *registration
	lkey   uint32
	closed atomic.Bool
}

// Alloc returns a region of page-aligned memory outside the Go heap.
func (d *Device) Alloc(n int, purpose string) (rdma.Region, error) {
	if n <= 0 {
		return nil, fmt.Errorf("verbs: alloc %q: %d bytes", purpose, n)
	}
	block, err := hostmem.Alloc(n, purpose)
	if err != nil {
		return nil, fmt.Errorf("verbs: alloc %q: %w", purpose, err)
	}
	r, err := d.register(block.Bytes(), block)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verbs: alloc %q of %d bytes: %w", purpose, n, err), block.Close())
	}
	return r, nil
}

// Register pins b, in Go's eyes and the kernel's, until the region and all others of the same range
// are closed.
func (d *Device) Register(b []byte) (rdma.Region, error) {
	if len(b) == 0 {
		return nil, errors.New("verbs: register: no bytes")
	}
	r, err := d.register(b[:len(b):len(b)], nil)
	if err != nil {
		return nil, fmt.Errorf("verbs: register %d bytes: %w", len(b), err)
	}
	return r, nil
}

func (d *Device) register(b []byte, block *hostmem.Block) (*region, error) {
	s := span{ibv.Addr(b), len(b)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.closedError()
	}
	reg := d.shared[s]
	if reg == nil {
		reg = &registration{span: s, block: block}
		if block == nil {
			reg.pinner.Pin(&b[0])
		}
		var err error
		if reg.mr, err = d.pd.NewMR(s.addr, s.n, d.access()); err != nil {
			reg.pinner.Unpin()
			return nil, explain(err, s.n)
		}
		d.shared[s] = reg
	}
	reg.users++
	r := &region{dev: d, bytes: b, reg: reg, lkey: reg.mr.LKey}
	d.regions[r] = struct{}{}
	return r, nil
}

// access is what regions are for.
func (d *Device) access() uint32 {
	a := uint32(ibv.AccessLocalWrite | ibv.AccessRemoteWrite)
	if d.opts.RelaxedOrdering {
		a |= ibv.AccessRelaxedOrdering
	}
	return a
}

func (r *region) Bytes() []byte {
	if r.closed.Load() {
		return nil
	}
	return r.bytes
}

func (r *region) Remote() rdma.RemoteRegion {
	return rdma.RemoteRegion{Addr: uint64(r.reg.span.addr), Key: uint64(r.reg.mr.RKey), Len: uint64(r.reg.span.n)}
}

// Close invalidates the key, unless another region has the same range.
func (r *region) Close() error {
	r.dev.mu.Lock()
	if _, open := r.dev.regions[r]; !open { // closed before, or Device.Close has it
		r.dev.mu.Unlock()
		return nil
	}
	delete(r.dev.regions, r)
	r.dev.mu.Unlock()
	return r.release()
}

func (r *region) release() error {
	r.closed.Store(true)
	d := r.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	r.reg.users--
	if r.reg.users > 0 {
		return nil
	}
	if d.shared[r.reg.span] == r.reg {
		delete(d.shared, r.reg.span)
	}
	err := r.reg.mr.Destroy()
	if err != nil {
		// The card may still reach the memory, so that it must stay.
		return fmt.Errorf("verbs: region of %d bytes: %w", r.reg.span.n, err)
	}
	r.reg.pinner.Unpin()
	if r.reg.block != nil {
		err = r.reg.block.Close()
	}
	return err
}

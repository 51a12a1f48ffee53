//go:build linux

package tcp

import (
	"sync"

	"github.com/gccl/gccl/rdma"
)

var _ rdma.Redirector = (*region)(nil)

// detours are where single writes to a region land instead, by the address at which they begin.
type detours struct {
	mu    sync.Mutex
	to    map[uint64]detour
	round uint32 // of Restore
}

type detour struct {
	dst []byte
	got int // bytes of the write that took it; −1: none yet
}

// Redirect implements rdma.Redirector.
func (r *region) Redirect(offset int, dst []byte) {
	d := &r.detours
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to == nil {
		d.to = map[uint64]detour{}
	}
	d.to[uint64(offset)] = detour{dst, -1}
}

// Redirected implements rdma.Redirector.
func (r *region) Redirected(offset int) int {
	d := &r.detours
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.to[uint64(offset)]
	if !ok {
		return -1
	}
	delete(d.to, uint64(offset))
	return x.got
}

// Restore implements rdma.Redirector.
func (r *region) Restore() {
	d := &r.detours
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.to)
	d.round++
}

// take returns where the frame lands that a header announces, if not in the region, and the round in which
// that holds.
func (d *detours) take(h *header) (dst []byte, round uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.to[h.addr]
	if !ok || x.got >= 0 || h.length != h.total || uint64(h.length) > uint64(len(x.dst)) {
		return nil, 0
	}
	x.got = int(h.length)
	d.to[h.addr] = x
	return x.dst[:h.length], d.round
}

// giveBack undoes a take, for a write that was not stored to its end and comes again.
func (d *detours) giveBack(addr uint64, round uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x, ok := d.to[addr]; ok && d.round == round {
		x.got = -1
		d.to[addr] = x
	}
}

// over reports whether detours taken in a round have been ended by Restore.
func (d *detours) over(round uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.round != round
}

// restore returns the rest of a redirected frame to its region once its detour has ended.
func (in *inLane) restore() {
	if in.diverted && in.region.detours.over(in.round) {
		h := &in.h
		in.left = in.region.bytes[h.addr+uint64(h.length)-uint64(len(in.left)):][:len(in.left)]
		in.diverted = false
	}
}

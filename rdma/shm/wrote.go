//go:build linux

package shm

import (
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
)

// wroteRing holds the completions of an endpoint's own signaled writes between the posting and the
// polling goroutine.
type wroteRing struct {
	ids        []uint64 // maxPosted places
	tail, head atomic.Uint64
	failed     atomic.Pointer[rdma.Completion] // follows all others; there is at most one
}

func newWroteRing() wroteRing { return wroteRing{ids: make([]uint64, maxPosted)} }

func (r *wroteRing) room() bool { return r.tail.Load()-r.head.Load() < maxPosted }

func (r *wroteRing) put(id uint64) {
	tail := r.tail.Load()
	r.ids[tail%maxPosted] = id
	r.tail.Store(tail + 1)
}

func (r *wroteRing) ready() bool {
	return r.tail.Load() != r.head.Load() || r.failed.Load() != nil
}

func (r *wroteRing) drain(cs []rdma.Completion, endpoint uint32) int {
	failed := r.failed.Load() // before tail: what was posted before the failure comes before it
	head, tail, n := r.head.Load(), r.tail.Load(), 0
	for ; head != tail && n < len(cs); head++ {
		cs[n] = rdma.Completion{Kind: rdma.Wrote, Endpoint: endpoint, ID: r.ids[head%maxPosted]}
		n++
	}
	if n > 0 {
		r.head.Store(head)
	}
	if failed != nil && head == tail && n < len(cs) {
		r.failed.Store(nil)
		cs[n] = *failed
		n++
	}
	return n
}

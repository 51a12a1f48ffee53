//go:build linux

package tcp

import (
	"slices"

	"github.com/gccl/gccl/rdma"
)

var _ rdma.Keeper = (*endpoint)(nil)

// Keep implements rdma.Keeper.
func (e *endpoint) Keep() {
	t := &e.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.next
	if e.rails != nil { // what has not landed may have to be sent again
		first = t.done
	}
	for n := first; n < t.tail; n++ {
		p := t.at(n)
		p.local = slices.Clone(p.local)
	}
	for _, l := range e.lanes {
		l.out.big = slices.Clone(l.out.big)
	}
}

// keepInlineLocked copies the inline writes since first that no lane has taken yet, or, with several
// sockets, all.
func (t *transmitter) keepInlineLocked(first uint64) {
	if t.e.rails == nil {
		first = max(first, t.next)
	}
	for n := first; n < t.tail; n++ {
		p := t.at(n)
		// Only inline writes can be this short and outside a region; for the others it does not matter.
		if len(p.local) == 0 || len(p.local) > maxInline {
			continue
		}
		if t.inline == nil {
			t.inline = make([]byte, maxInline*len(t.ring))
		}
		at := int(n&uint64(len(t.ring)-1)) * maxInline
		p.local = t.inline[at : at+copy(t.inline[at:at+maxInline], p.local)]
	}
}

package link

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A rank whose process is stopped (SIGSTOP, a debugger, a frozen control group) or starved breaks no
// connection and leaves no notice: its memory is simply never written again. So every rank counts up
// the first word of its arena (Beat, ten times a second, from a goroutine of its own), and who waits
// for a peer reads that word in the peer's mapped memory (Listen). A read costs the waiter a cache line
// now and then, and the peer nothing. Peers whose memory is not mapped have no pulse that this rank
// could see.

// lookGap is how long this rank may not have looked for its looks to count as one watch. After a
// longer gap, it was not waiting, or has been stopped itself, and begins anew.
const lookGap = time.Second

// watch is what this rank knows of a peer's pulse. It belongs to the goroutine that runs a collective.
type watch struct {
	word   *atomic.Uint64 // in the peer's arena; nil: not to be seen
	seen   uint64
	since  time.Time // when seen was first read
	looked time.Time // latest look
}

// Beat counts up this rank's pulse. One goroutine at a time may call it, until Close.
func (m *Mesh) Beat() {
	for _, pt := range m.ports {
		if len(pt.endpoints) < len(pt.peers) { // some have it mapped
			wordAt(pt.arena.Bytes()).Add(1)
		}
	}
}

// Listen looks at the pulse of a peer that this rank waits for. If it has stood still for limit, while
// this rank has looked all the time, the peer is gone from then on.
func (p *Peer) Listen(now time.Time, limit time.Duration) {
	w := &p.watch
	if w.word == nil || p.gone.Load() != nil {
		return
	}
	v := w.word.Load()
	if v != w.seen || now.Sub(w.looked) > lookGap {
		w.seen, w.since = v, now
	}
	w.looked = now
	if still := now.Sub(w.since); still >= limit {
		p.gone.CompareAndSwap(nil, &Notice{Cause: CauseLost, From: p.mesh.rank, Culprit: p.Rank,
			Text: fmt.Sprintf("%s has been stopped or cut off for %v", p.mesh.describe(p.Rank), still.Round(100*time.Millisecond))})
	}
}

package link

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/rdma"
)

// A rank whose process is stopped (SIGSTOP, a debugger, a frozen control group) or starved breaks no
// connection and leaves no notice: it simply does nothing any more. So every rank shows a pulse (Beat,
// every BeatEvery, from a goroutine of its own), and who waits for a peer watches it (Listen).
//
//   - Where memory is mapped, the pulse is the first word of the rank's arena, which peers read. A look
//     costs the waiter a cache line now and then, and the peer nothing.
//   - Over posted writes, it is the first word of the peer's board, which the rank writes: eight bytes
//     without a completion at the peer. Whatever else arrives from the peer counts, too.

// BeatEvery is the time between two calls of Beat.
const BeatEvery = 100 * time.Millisecond

const (
	// lookGap is how long this rank may not have looked for its looks to count as one watch. After a
	// longer gap, it was not waiting, or has been stopped itself, and begins anew.
	lookGap = time.Second
	// maxBeats is how many beats are posted that nobody has polled the completions of: the rest of the
	// send queue is for messages. A rank polls at every beat unless it is busy in a call.
	maxBeats = 64
	// beatShare is how many peers get a posted beat at once; with more, each gets them more rarely.
	beatShare = 32
	// beatsMissed is how many posted beats must be due for a pulse to count as still.
	beatsMissed = 5
)

// watch is what this rank knows of a peer's pulse. It belongs to the goroutine that runs a collective.
type watch struct {
	word   *atomic.Uint64 // nil: not to be seen
	seen   uint64
	since  time.Time // when seen was first read
	looked time.Time // latest look
}

// Beat shows the peers a sign of life. One goroutine at a time may call it, after Connect and until Close,
// beside whatever else uses the mesh.
func (m *Mesh) Beat() {
	m.beats++
	for _, pt := range *m.ports.Load() {
		if len(pt.endpoints) < len(pt.peers) { // some have it mapped
			wordAt(pt.arena.Bytes()).Add(1)
		}
		for _, w := range pt.wires {
			if (m.beats+w.peer.Rank)%m.beatTurns() == 0 {
				w.beat()
			}
		}
	}
}

// beatTurns is how many calls of Beat give each posted-write peer one beat.
func (m *Mesh) beatTurns() int { return 1 + (m.size-2)/beatShare }

// beat posts a sign of life, unless messages wait, which are one.
func (w *wire) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.backlog) > 0 || w.beats >= maxBeats || w.peer.gone.Load() != nil {
		return
	}
	w.beats++
	b := w.staging.Bytes()[:8]
	wordAt(b).Add(1)
	w.postLocked(rdma.Write{Local: b, Region: w.staging, Remote: w.peer.remote, Offset: w.peer.base})
}

// Listen looks at the pulse of a peer that this rank waits for. If it has stood still for limit, while
// this rank has looked all the time, the peer is gone from then on.
func (p *Peer) Listen(now time.Time, limit time.Duration) {
	w := &p.watch
	if w.word == nil || p.gone.Load() != nil {
		return
	}
	v := w.word.Load()
	if p.wire != nil {
		v += p.wire.signs
		limit = max(limit, time.Duration(beatsMissed*p.mesh.beatTurns())*BeatEvery)
	}
	if v != w.seen || now.Sub(w.looked) > lookGap {
		w.seen, w.since = v, now
	}
	w.looked = now
	if still := now.Sub(w.since); still >= limit {
		p.gone.CompareAndSwap(nil, &Notice{Cause: CauseLost, From: p.mesh.rank, Culprit: p.Rank,
			Text: fmt.Sprintf("%s has been stopped or cut off for %v", p.mesh.describe(p.Rank), still.Round(100*time.Millisecond))})
	}
}

// EachUndrained calls f for the peers whose connections have not taken what was posted.
func (m *Mesh) EachUndrained(f func(*Peer)) {
	for w := range m.wires() {
		if !w.drained() {
			f(w.peer)
		}
	}
}

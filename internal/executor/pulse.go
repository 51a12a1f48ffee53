package executor

import (
	"time"

	"github.com/gccl/gccl/internal/link"
)

// listenEvery is how often a waiting engine looks at its peers' pulses.
const listenEvery = 50 * time.Millisecond

// ears are when the engine last listened, and a list kept to save allocations.
type ears struct {
	at    time.Time
	ranks []int
}

// listen looks at the pulses of the peers that some lane, or the end of the run, waits for.
func (e *Engine) listen(now time.Time) {
	if e.wait.Silence <= 0 || now.Sub(e.ears.at) < listenEvery {
		return
	}
	e.ears.at = now
	if e.left == 0 {
		e.mesh.EachUndrained(func(p *link.Peer) { p.Listen(now, e.wait.Silence) })
	}
	at := LaneAt{WaitsFor: e.ears.ranks[:0]}
	for i := range e.lanes {
		e.awaited(&e.lanes[i], &at)
	}
	e.ears.ranks = at.WaitsFor
	for _, r := range at.WaitsFor {
		e.mesh.Peer(r).Listen(now, e.wait.Silence)
	}
}

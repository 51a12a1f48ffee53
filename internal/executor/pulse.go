package executor

import "time"

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
	e.ears.ranks = e.WaitsFor(e.ears.ranks[:0])
	for _, r := range e.ears.ranks {
		e.mesh.Peer(r).Listen(now, e.wait.Silence)
	}
}

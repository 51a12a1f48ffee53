package executor

import (
	"slices"
	"time"

	"github.com/gccl/gccl/internal/link"
)

// LaneAt is where a lane that has not finished stands.
type LaneAt struct {
	At
	// WaitsFor are the ranks without which the lane cannot go on; none: it waits for another lane, or
	// is about to go on.
	WaitsFor []int
}

// Lanes returns where every lane of the run in progress, or of the run that failed, stands. It belongs
// to the goroutine that runs.
func (e *Engine) Lanes() []LaneAt {
	var out []LaneAt
	for i := range e.lanes {
		if l := &e.lanes[i]; l.live() || l.over && l.lent {
			at := LaneAt{At: e.at(i)}
			e.awaited(l, &at)
			out = append(out, at)
		}
	}
	return out
}

// awaited adds the ranks that a lane waits for.
func (e *Engine) awaited(l *lane, at *LaneAt) {
	if l.over && l.lent {
		for j := range l.acts {
			for k, s := range l.acts[j].sends {
				if !s.Drained() {
					at.add(l.acts[j].sendTo[k])
				}
			}
		}
		return
	}
	if !l.live() || l.held {
		return
	}
	a := &l.acts[l.at]
	if l.size < 0 && !e.ready(l, a) {
		return
	}
	for k, r := range a.receives {
		if m, _ := r.Peek(l.expects(a)); m == nil || m.Far { // of which the rest is with its sender
			at.add(a.recvFrom[k])
		}
	}
	l.blocked(a, at.add)
}

func (at *LaneAt) add(p *link.Peer) {
	if !slices.Contains(at.WaitsFor, p.Rank) {
		at.WaitsFor = append(at.WaitsFor, p.Rank)
	}
}

// Waiting is when the latest run first had to wait for long; zero: it has not.
func (e *Engine) Waiting() time.Time { return e.waiting }

// Waited reports whether it had to.
func (e *Engine) Waited() bool { return !e.waiting.IsZero() }

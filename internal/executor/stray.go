package executor

import (
	"time"

	"github.com/gccl/gccl/internal/link"
)

// A rank finds out that a peer is in another call when it takes a message of the peer's. A message that
// its own call does not take, because by its own description nothing comes from there, would go unseen,
// and both might wait for ever: one for what the other does not send, the other for room. So who waits
// looks at those messages as well.

// strayEvery is how often.
const strayEvery = time.Millisecond

// number is the sequence number of a call (docs/wire.md, Header).
func number(c *link.Call) uint32 { return uint32(c.A) }

// collective reports whether the job is not a transfer, whose sequence numbers are others.
func (e *Engine) collective(j *Job) bool { return j.Plan.laneBase < e.mesh.Geometry().Lanes-1 }

// stray returns a *link.Mismatch if some peer has sent what contradicts the calls in progress.
func (e *Engine) stray(now time.Time) error {
	if now.Sub(e.strayAt) < strayEvery {
		return nil
	}
	e.strayAt = now
	for r := range e.mesh.Size() {
		p := e.mesh.Peer(r)
		for lane := 0; p != nil && lane < e.mesh.Geometry().Lanes-1; lane++ {
			if theirs, ok := p.Receiver(lane).Look(); ok {
				if mine := e.contradicted(&theirs); mine != nil {
					return &link.Mismatch{Peer: r, Mine: *mine, Theirs: theirs}
				}
			}
		}
	}
	return nil
}

// contradicted returns the collective in progress that cannot be if a peer makes the other one, or nil. A
// message of a later call is from a peer that is ahead; one of an earlier call should have been taken in it.
func (e *Engine) contradicted(theirs *link.Call) *link.Call {
	var first *link.Call
	for i := range e.lanes {
		l := &e.lanes[i]
		if !e.collective(l.job) {
			continue
		}
		mine := &l.job.Args.Call
		if number(mine) == number(theirs) {
			if l.job.Plan.Layout.Pairwise || mine.FP == theirs.FP {
				return nil
			}
			return mine
		}
		if first == nil || int32(number(mine)-number(first)) < 0 {
			first = mine
		}
	}
	if first != nil && int32(number(theirs)-number(first)) < 0 {
		return first
	}
	return nil
}

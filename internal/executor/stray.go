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

// strays are when the engine last looked, and the number of the latest collective that has ended.
type strays struct {
	at   time.Time
	last uint32
	any  bool // one has ended
}

// number is the sequence number of a call (docs/wire.md, Header).
func number(c *link.Call) uint32 { return uint32(c.A) }

// collective reports whether the job is not a transfer, whose sequence numbers are others.
func (e *Engine) collective(j *Job) bool { return j.Plan.laneBase < e.mesh.Geometry().Lanes-1 }

// ended notes the end of a run.
func (e *Engine) ended(jobs []*Job) {
	for _, j := range jobs {
		if e.collective(j) {
			e.strays.last, e.strays.any = number(&j.Args.Call), true
		}
	}
}

// stray returns a *link.Mismatch if some peer has sent what contradicts the calls in progress.
func (e *Engine) stray(now time.Time) error {
	if now.Sub(e.strays.at) < strayEvery {
		return nil
	}
	e.strays.at = now
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

// contradicted returns the call in progress that cannot be if a peer makes the other one, or nil. A
// message of a later call is from a peer that is ahead.
func (e *Engine) contradicted(theirs *link.Call) *link.Call {
	for i := range e.lanes {
		l := &e.lanes[i]
		mine := &l.job.Args.Call
		switch {
		case !e.collective(l.job):
			if e.strays.any && int32(number(theirs)-e.strays.last) <= 0 {
				return mine
			}
		case number(mine) == number(theirs):
			if !l.job.Plan.Layout.Pairwise && mine.FP != theirs.FP {
				return mine
			}
		case e.strays.any && int32(number(theirs)-e.strays.last) <= 0:
			return mine // left from a call that has ended here
		}
	}
	return nil
}

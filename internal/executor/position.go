package executor

import (
	"fmt"

	"github.com/gccl/gccl/internal/link"
)

// At is where a run stands.
type At struct {
	Job               *Job
	Lane, Step, Steps int
	Doing             string // the step in words
}

// Position returns where the lane that failed stands, or the first one that has not finished; ok is
// false if all have.
func (e *Engine) Position() (at At, ok bool) {
	at.Step = -1
	for i := range e.lanes {
		l := &e.lanes[i]
		if !l.live() || ok && l != e.failed {
			continue
		}
		p := l.job.Plan
		a := &l.acts[l.at]
		at = At{Job: l.job, Lane: i - l.first + p.laneBase, Steps: p.windows * len(l.acts), Step: l.window*len(l.acts) + l.at + 1}
		if at.Doing = a.words(); l.held {
			at.Doing = heldWords
		}
		ok = true
	}
	return at, ok
}

// heldWords describe what a lane does before its window is there.
const heldWords = "copy from the device"

// words describes an action: "recv-reduce from 2, 3; send to 1".
func (a *action) words() string {
	s := ""
	for i, p := range a.recvFrom {
		switch {
		case i > 0:
			s += fmt.Sprintf(", %d", p.Rank)
		case len(a.operands) > 1:
			s = fmt.Sprintf("recv-reduce from %d", p.Rank)
		default:
			s = fmt.Sprintf("recv from %d", p.Rank)
		}
	}
	for i, p := range a.sendTo {
		switch {
		case i > 0:
			s += fmt.Sprintf(", %d", p.Rank)
		case s != "":
			s += fmt.Sprintf("; send to %d", p.Rank)
		default:
			s = fmt.Sprintf("send to %d", p.Rank)
		}
	}
	if s == "" {
		return "local"
	}
	return s
}

// WaitsFor appends the ranks that some lane waits for, each once; where all lanes are over, those whose
// connections have not taken what was posted.
func (e *Engine) WaitsFor(ranks []int) []int {
	add := func(r int) {
		for _, have := range ranks {
			if have == r {
				return
			}
		}
		ranks = append(ranks, r)
	}
	if e.left == 0 {
		e.mesh.EachUndrained(func(p *link.Peer) { add(p.Rank) })
	}
	for i := range e.lanes {
		l := &e.lanes[i]
		if !l.live() || l.held {
			continue
		}
		a := &l.acts[l.at]
		for k, r := range a.receives {
			if m, _ := r.Peek(l.expects(a)); m == nil {
				add(a.recvFrom[k].Rank)
			}
		}
		l.blocked(a, func(p *link.Peer) { add(p.Rank) })
	}
	return ranks
}

package executor

import "fmt"

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
		at, ok = e.at(i), true
	}
	return at, ok
}

// at is where lane i of the run stands.
func (e *Engine) at(i int) At {
	l := &e.lanes[i]
	p := l.job.Plan
	at := At{Job: l.job, Lane: i - l.first + p.laneBase, Steps: p.windows * len(l.acts)}
	switch {
	case l.over:
		at.Step, at.Doing = at.Steps, "release of what was lent"
		return at
	case l.held:
		at.Doing = "copy from the device"
	default:
		at.Doing = l.acts[l.at].words()
	}
	at.Step = l.window*len(l.acts) + l.at + 1
	return at
}

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
// connections have not taken what was posted, too.
func (e *Engine) WaitsFor(ranks []int) []int {
	at := LaneAt{WaitsFor: ranks}
	if e.left == 0 {
		e.mesh.EachUndrained(at.add)
	}
	for i := range e.lanes {
		e.awaited(&e.lanes[i], &at)
	}
	return at.WaitsFor
}

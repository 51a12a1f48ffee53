package executor

import (
	"time"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/link"
)

// How many polls in vain a sprint waits for one action before the engine goes on at its usual pace: of
// memory, and of completion queues, which take many times as long.
const (
	sprintPolls     = 256
	sprintWirePolls = 64
)

// dartPause is for how long a dart leaves the line alone that it polls. Without, it takes the line away again from a sender that has
// just fetched it to write there, and a message takes two crossings more: 331 ns one way between far cores for 178 with two, in a
// model of two loops; with one 10 to 70 more, with three as many as with two. Between near cores two cost 8 ns.
const dartPause = 2

// Where memory shows the messages that are waited for, a sprint looks there earlyLooks times for each poll of completion
// queues, and takes earlyPolls times as many looks in vain.
const (
	earlyLooks = 32
	earlyPolls = 8
)

// patience returns how many looks in vain a sprint waits for, and for how many of them it polls the mesh once.
func (e *Engine) patience(p *Plan) (most, every int) {
	switch {
	case !e.wire && e.wait.Spins == 0: // each is a yield
		return checkEvery, 0
	case !e.wire:
		return sprintPolls, 0
	case e.early && p.longest <= link.SealedBytes:
		return sprintWirePolls * earlyPolls, earlyLooks
	}
	return sprintWirePolls, 1
}

// shortMost is the longest transfer that takes the short cuts.
const shortMost = 8 << 10

// fitsInline reports whether every transfer of the plan fits into a message's header, in one window.
// Nothing is ever cut, lent or placed then.
func (p *Plan) fitsInline() bool { return p.windows == 1 && p.longest <= link.InlineBytes }

// fitsSlot reports whether every transfer of the plan is one short message over mapped memory in any case. Nothing is ever
// cut or placed then, nor, below the engine's lendMin, lent.
func (p *Plan) fitsSlot(m *link.Mesh) bool {
	return p.windows == 1 && p.longest <= min(shortMost, m.Geometry().SlotBytes) && !m.NeedsProgress()
}

// allShort reports whether jobs may take the short cuts, sprint and dart.
func (e *Engine) allShort(jobs []*Job) bool {
	for _, j := range jobs {
		if !e.short(j) || j.Args.Stage != nil {
			return false
		}
	}
	return true
}

// short reports whether a job may, but for a stage of its own.
func (e *Engine) short(j *Job) bool {
	p := j.Plan
	return p.small || p.brief && (p.longest < e.lendMin || j.Args.InPlace.Window == 0 && j.Args.OutPlace.Window == 0)
}

// sprint carries out the actions of small plans, whose lanes alone are the engine's, as long as something moves now and then. It
// does what advance and fire would do, without what they keep for transfers that take several pieces or windows: half of what a
// message of 8 bytes costs. Where it stops, they go on, and find the error that stopped it, unless it is returned.
func (e *Engine) sprint() error {
	most, every := e.patience(e.lanes[0].job.Plan)
	for i := 1; i < len(e.lanes); i++ {
		if j := e.lanes[i].job; j != e.lanes[i-1].job {
			m, v := e.patience(j.Plan)
			most, every = min(most, m), min(every, v)
		}
	}
	for polls := 0; polls < most; polls++ {
		for i := range e.lanes {
			l := &e.lanes[i]
			for l.live() {
				a := &l.acts[l.at]
				if !e.ready(l, a) {
					break
				}
				did := e.carry(l, a)
				if did == unfit {
					return nil
				}
				if did == waits {
					break
				}
				polls = 0
				if e.next(l, a); l.over {
					l.job.left--
					e.left--
				}
			}
		}
		if e.left == 0 {
			return nil
		}
		switch {
		case e.wire:
			if polls%every == 0 {
				if _, err := e.progress(); err != nil {
					return err
				}
			}
		case e.wait.Spins == 0:
			e.wait.Yield()
		case polls > hotSpins:
			cpu.Pause(1)
		}
	}
	return nil
}

// dart is sprint for a plan that is single: the engine's lane is begun only where it stops, at the action of e.solo
// (resume). Where ranks outnumber cores it yields after every poll in vain. The error is the mesh's.
func (e *Engine) dart(j *Job) (over bool, err error) {
	if !e.waiting.IsZero() {
		e.waiting = time.Time{}
	}
	e.fit(j.Plan)
	l := &e.solo
	l.job, l.at = j, 0
	l.call.Set(&j.Args.Call)
	acts := j.Plan.lanes[0]
	most, every := e.patience(j.Plan)
	for polls := 0; polls < most; {
		a := &acts[l.at]
		did := e.carry(l, a)
		if did == done {
			polls = 0
			if l.at++; l.at == len(acts) {
				j.left = 0
				return true, nil
			}
			continue
		}
		if did == unfit {
			return false, nil
		}
		polls++
		switch {
		case e.wire:
			if every > 1 && polls%every != 1 {
				continue
			}
			if _, err := e.progress(); err != nil {
				return false, err // what the poll took is lost to the engine
			}
		case e.wait.Spins == 0:
			e.wait.Yield()
		default:
			cpu.Pause(dartPause)
		}
	}
	return false, nil
}

// resume brings the lane that start has begun to where dart stopped.
func (e *Engine) resume() {
	l := &e.lanes[0]
	for range e.solo.at {
		e.next(l, &l.acts[l.at])
	}
	if l.over { // and posted writes are not out yet
		l.job.left--
		e.left--
	}
}

// What dash did.
type dashed uint8

const (
	waits dashed = iota // a link is not ready
	done
	unfit // it is for fire to deal with
)

// carry carries out a whole action, or nothing of it.
func (e *Engine) carry(l *lane, a *action) dashed {
	if a.easy {
		if did := e.hand(l, a, a.bytes); did != unfit {
			return did
		}
	}
	return e.dash(l, a)
}

// dash is carry for every action.
func (e *Engine) dash(l *lane, a *action) dashed {
	n := a.bytes
	if l.job.Plan.Layout.Pairwise {
		l.call = pairCall(&l.job.Args.Call, n, l.job.Plan.Layout.Elem)
	}
	for i := range a.receives {
		m, err := a.receives[i].Peek(&l.call)
		if err != nil {
			return unfit
		}
		if m == nil {
			return waits
		}
		if m.Len != n || len(m.Data) != n || m.Lent {
			return unfit
		}
		e.msgs[i] = m
	}
	dsts := e.dsts[:0]
	if a.keeps() {
		dsts = append(dsts, l.buffer(a.dst.buf)[a.dst.offset:][:n])
	}
	shared := l.shares(a, n)
	if shared {
		b, ok := a.shared.Reserve(n)
		if !ok {
			return waits
		}
		dsts = append(dsts, b)
	} else {
		for i := range a.sends {
			b, ok := a.sends[i].Reserve(n)
			if !ok {
				return waits
			}
			dsts = append(dsts, b)
		}
	}
	srcs := e.srcs[:len(a.operands)]
	for i := range a.operands {
		if o := &a.operands[i]; o.recv >= 0 {
			srcs[i] = e.msgs[o.recv].Data
		} else {
			srcs[i] = l.buffer(o.ext.buf)[o.ext.offset:][:n]
		}
	}
	e.combine(l, a, dsts, srcs, n)
	if shared {
		a.shared.Commit(&l.call)
	} else {
		for i := range a.sends {
			a.sends[i].Commit(n, &l.call)
		}
	}
	for i := range a.receives {
		a.receives[i].Advance(n)
	}
	return done
}

// hand is dash for what is easy: one operand goes to where it is wanted as it is. It leaves what is unusual to dash.
func (e *Engine) hand(l *lane, a *action, n int) dashed {
	if red := l.job.Args.Reducer; red != nil && (red.HasPre() || a.final && red.HasPost()) {
		return unfit
	}
	o := &a.operands[0]
	if o.recv >= 0 {
		switch a.receives[0].Take(l.buffer(a.dst.buf)[a.dst.offset:][:n], &l.call) {
		case link.Nothing:
			return waits
		case link.Taken:
			return done
		}
		return unfit
	}
	src := l.buffer(o.ext.buf)[o.ext.offset:][:n]
	for i := 1; i < len(a.sends); i++ {
		if _, ok := a.sends[i].Reserve(n); !ok {
			return waits
		}
	}
	for _, s := range a.sends {
		if !s.Put(src, &l.call) {
			return waits // the first: the others have room
		}
	}
	if a.keeps() && n > 0 {
		if d := l.buffer(a.dst.buf)[a.dst.offset:]; &d[0] != &src[0] {
			copy(d[:n], src)
		}
	}
	return done
}

package executor

import (
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
)

// directMin is the shortest piece that is sent from where it lies: it costs a frame of its own, which a
// copy of less than this does not (measured over tcp).
const directMin = 8 << 10

// fireDirect is the rest of fire where the value need not be staged for the links: it is computed into
// its destination, if it has one, and sent from there. The user's memory is in use until the mesh is
// drained, which the run waits for.
func (e *Engine) fireDirect(l *lane, a *action, call *link.Call, n int) bool {
	for _, s := range a.sends {
		b, ok := s.Reserve(n)
		if !ok {
			return false
		}
		n = min(n, len(b))
	}
	srcs := e.sources(l, a, n)
	data := srcs[0]
	if a.hasDst {
		off, _ := a.dst.at(l.window, l.job.Plan.Layout.Elem)
		dsts := e.dsts[:1]
		dsts[0] = l.buffer(a.dst.buf)[off+l.done:][:n]
		e.combineBy(l, a, dsts, srcs, n, ways{})
		data = dsts[0]
	}
	for _, s := range a.sends {
		s.CommitFrom(data, call)
	}
	for _, r := range a.receives {
		r.Advance(n)
	}
	l.done += n
	return true
}

// stays reports whether what the action sends lies unchanged in the caller's memory until the run has
// ended. Under a schedule that is not Lazy that is only sure of In, unless In and Out are the same memory.
// They are that as a whole or, in calls whose schedules are all Lazy, in part.
func (l *lane) stays(a *action) bool {
	args := &l.job.Args
	if args.Stage != nil { // which may bring another window to the same place
		return false
	}
	if !a.lazy && len(args.Out) > 0 && (len(args.In) != len(args.Out) || &args.In[0] == &args.Out[0]) {
		return false
	}
	scaled := !a.hasDst && a.operands[0].ext.buf == schedule.In && args.Reducer != nil && args.Reducer.HasPre()
	return !scaled
}

// tellPlace tells the link where the action's transfer goes, if it goes there as it comes.
func (e *Engine) tellPlace(l *lane, a *action) {
	if !a.lands || l.told || l.size < directMin {
		return
	}
	off, _ := a.dst.at(l.window, l.job.Plan.Layout.Elem)
	a.receives[0].Expect(l.buffer(a.dst.buf)[off:][:l.size])
	l.told = true
}

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
func (e *Engine) fireDirect(l *lane, a *action, call *link.Call, n int, lent bool) (bool, error) {
	from := &a.dst
	if !a.hasDst {
		from, n = &a.operands[0].ext, l.size-l.done // nothing is computed, so that it may be one message
	}
	off, _ := from.at(l.window, l.job.Plan.Layout.Elem)
	data := l.part(from, n)
	at := l.placeOf(from.buf, off+l.done)
	for _, s := range a.sends {
		room, ok := s.(link.DirectSender).ReserveFrom(data, at, call)
		if !ok {
			return false, nil
		}
		data = data[:min(len(data), room)]
	}
	n = len(data)
	if a.hasDst {
		dsts := e.dsts[:1]
		dsts[0] = data
		srcs, err := e.sources(l, a, dsts, n)
		if srcs == nil {
			return false, err
		}
		e.combineBy(l, a, dsts, srcs, n, ways{})
	}
	if err := e.stillLent(lent); err != nil {
		return false, err
	}
	for i, s := range a.sends {
		s.(link.DirectSender).CommitFrom(data, call)
		l.lent = l.lent || a.sendTo[i].Attached()
	}
	l.moved(a, n)
	return true, nil
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

// placeOf is the place of a byte of a buffer, if it is registered.
func (l *lane) placeOf(b schedule.Buf, off int) (at link.Place) {
	switch b {
	case schedule.In:
		at = l.job.Args.InPlace
	case schedule.Out:
		at = l.job.Args.OutPlace
	}
	if at.Window != 0 {
		at.Offset += uint64(off)
	}
	return at
}

// sendsFrom reports whether the links can take the next n bytes that the action sends from where they lie.
func (l *lane) sendsFrom(a *action, n int) bool {
	from := a.dst.buf
	if !a.hasDst {
		from = a.operands[0].ext.buf
	}
	place, least := l.placeOf(from, 0), l.job.Args.AttachMin
	read := least > 0 && l.size >= least && place.Window == 0 // by the peer, in this process
	for _, p := range a.sendTo {
		posted := n >= directMin && (p.Direct() || l.size >= link.GrantMin && p.Sends(place))
		if !posted && !(read && p.Attached()) {
			return false
		}
	}
	return l.stays(a)
}

// tellPlace tells the link where the action's transfer goes, if it goes there as it comes.
func (e *Engine) tellPlace(l *lane, a *action) {
	if a.lands == nil || l.told || l.size < directMin {
		return
	}
	off, _ := a.dst.at(l.window, l.job.Plan.Layout.Elem)
	a.lands.Expect(l.buffer(a.dst.buf)[off:][:l.size], l.placeOf(a.dst.buf, off), &l.call)
	l.told = true
}

// foresee tells links where receives go that come after others in a group, as far as they like to know: the calls' tensors
// do not overlap, so that they may land there now.
func (e *Engine) foresee() {
	if !e.wire {
		return
	}
	for ; e.foreseen < len(e.lanes); e.foreseen++ {
		l := &e.lanes[e.foreseen]
		p := l.job.Plan
		if l.live() || l.over || p.Program.Schedule.Collective != 0 || l.acts[0].lands == nil {
			continue
		}
		a := &l.acts[0]
		off, n := a.dst.at(0, p.Layout.Elem)
		if at := l.placeOf(a.dst.buf, off); n >= link.GrantMin && at.Window != 0 && !a.lands.ExpectAhead(n, at, &l.call) {
			return
		}
	}
}

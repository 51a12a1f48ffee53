package executor

import (
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
)

// cut trims the destinations to n bytes and fills in the local one.
func (e *Engine) cut(l *lane, a *action, dsts [][]byte, n int) {
	first := 0
	if a.keeps() {
		off, _ := a.dst.at(l.window, l.job.Plan.Layout.Elem)
		dsts[0] = l.buffer(a.dst.buf)[off+l.done:][:n]
		first = 1
	}
	for i := first; i < len(dsts); i++ {
		b := dsts[i]
		if len(b) > n && len(b) <= link.InlineBytes && e.place(l, a, i-first) == nil {
			b, _ = a.sends[i-first].Reserve(n) // an inline reservation is committed whole
		}
		dsts[i] = b[:n]
	}
}

// sources lists the operands of the next n bytes.
func (e *Engine) sources(l *lane, a *action, n int) [][]byte {
	elem := l.job.Plan.Layout.Elem
	srcs := e.srcs[:len(a.operands)]
	for i := range a.operands {
		o := &a.operands[i]
		if o.recv < 0 {
			off, _ := o.ext.at(l.window, elem)
			srcs[i] = l.buffer(o.ext.buf)[off+l.done:][:n]
			continue
		}
		m := e.msgs[o.recv]
		if m.Placed {
			off, _ := a.dst.at(l.window, elem)
			srcs[i] = l.buffer(a.dst.buf)[off+l.done:][:n]
			continue
		}
		srcs[i] = m.Data[:n]
	}
	return srcs
}

// lend names the action's span to its receivers instead of copying it. tried is false where
// the span is not registered, must be scaled first, or some peer cannot read it.
func (e *Engine) lend(l *lane, a *action, call *link.Call) (ok, tried bool) {
	args := &l.job.Args
	o := &a.operands[0].ext
	place := args.InPlace
	if o.buf == schedule.Out {
		place = args.OutPlace
	}
	if place.Window == 0 || l.size > link.MaxMessage {
		return false, false
	}
	for _, p := range a.sendTo {
		if !p.Mapped() {
			return false, false
		}
	}
	if o.buf == schedule.In && args.Reducer != nil && args.Reducer.HasPre() {
		return false, false
	}
	off, _ := o.at(l.window, l.job.Plan.Layout.Elem)
	place.Offset += uint64(off)
	for _, s := range a.sends {
		if _, ok := s.Reserve(0); !ok {
			return false, true
		}
	}
	for _, s := range a.sends {
		s.(link.Lender).Lend(place, args.OutPlace, l.size, call)
	}
	l.done, l.lent = l.size, true
	return true, true
}

package executor

import (
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
)

// arrived looks for what an action receives: e.msgs, of which a piece has n bytes of each, at most most. n is −1 if
// something is missing or there is an error. lent: some of it is the memory of a peer's caller.
func (e *Engine) arrived(l *lane, a *action, most int) (n int, lent bool, err error) {
	n = most
	rest := l.size - l.done
	for i := range a.receives {
		m, err := a.receives[i].Peek(&l.call)
		if m == nil {
			if err != nil {
				err = l.locate(err)
			}
			return -1, false, err
		}
		if m.Len > rest || m.Len == 0 && rest > 0 {
			return -1, false, &Length{Peer: a.recvFrom[i].Rank, Got: l.done + m.Len, Want: l.size}
		}
		if m.Answer != nil && l.job.Plan.early {
			l.answer(a.recvFrom[i].Rank, m.Answer)
		}
		e.msgs[i] = m
		lent = lent || m.Lent
		n = min(n, m.Len)
	}
	e.borrowed = e.borrowed || lent
	return n, lent, nil
}

// moved takes note that n bytes of an action have been dealt with.
func (l *lane) moved(a *action, n int) {
	for _, r := range a.receives {
		r.Advance(n)
	}
	l.done += n
}

// part is the next n bytes of an extent of the lane's action.
func (l *lane) part(x *extent, n int) []byte {
	off, _ := x.at(l.window, l.job.Plan.Layout.Elem)
	return l.buffer(x.buf)[off+l.done:][:n]
}

// cut trims the destinations to n bytes and fills in the local one.
func (e *Engine) cut(l *lane, a *action, dsts [][]byte, n int) {
	first := 0
	if a.keeps() {
		dsts[0], first = l.part(&a.dst, n), 1
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
	srcs := e.srcs[:len(a.operands)]
	for i := range a.operands {
		switch o := &a.operands[i]; {
		case o.recv < 0:
			srcs[i] = l.part(&o.ext, n)
		case e.msgs[o.recv].Placed:
			srcs[i] = l.part(&a.dst, n)
		default:
			srcs[i] = e.msgs[o.recv].Data[:n]
		}
	}
	return srcs
}

// lend names the action's span to its receivers instead of copying it. tried is false where
// the span is not registered, must be scaled first, or some peer cannot read it.
func (e *Engine) lend(l *lane, a *action, call *link.Call) (ok, tried bool) {
	args := &l.job.Args
	o := &a.operands[0].ext
	off, _ := o.at(l.window, l.job.Plan.Layout.Elem)
	place := l.placeOf(o.buf, off)
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

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
		switch {
		case m.Far && l.takes(a): // nobody else works meanwhile, and every call of the kernel costs
			n = min(m.Len, PieceBytes)
		case m.Far:
			n = min(n, farBytes)
		}
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

// sources lists the operands of the next n bytes, which go to dsts; nil: not now, or a peer's memory cannot be read.
func (e *Engine) sources(l *lane, a *action, dsts [][]byte, n int) ([][]byte, error) {
	srcs := e.srcs[:len(a.operands)]
	for i := range a.operands {
		switch o := &a.operands[i]; {
		case o.recv < 0:
			srcs[i] = l.part(&o.ext, n)
		case e.msgs[o.recv].Placed:
			srcs[i] = l.part(&a.dst, n)
		case e.msgs[o.recv].Far:
			srcs[i] = dsts[0][:n]
			if !l.takes(a) {
				srcs[i] = e.farBlock(o.recv)[:n]
			}
			if ok, err := a.receives[o.recv].(link.FarReceiver).Fetch(srcs[i]); !ok || err != nil {
				return nil, err
			}
		default:
			srcs[i] = e.msgs[o.recv].Data[:n]
		}
	}
	return srcs, nil
}

// farBytes is how much is read of another process's memory at a time to be combined with something else: it shall still be in the
// nearest caches then. AllReduce of 1 MiB in a bare loop: 129 µs with 32 KiB, 117 with 128 and 256, 122 with 512.
const farBytes = 128 << 10

// takes reports whether the action's value is what it receives, as it is: it is read to where it goes then.
func (l *lane) takes(a *action) bool {
	red := l.job.Args.Reducer
	return len(a.operands) == 1 && (red == nil || !a.final || !red.HasPost())
}

// farBlock returns memory for a piece of the i-th message.
func (e *Engine) farBlock(i int) []byte {
	for len(e.far) <= i {
		e.far = append(e.far, nil)
	}
	if e.far[i] == nil {
		e.far[i] = make([]byte, farBytes)
	}
	return e.far[i]
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

package executor

import (
	"slices"

	"github.com/gccl/gccl/internal/link"
)

// shareMin is the shortest piece that is copied once for several peers. Between 256 bytes and 32 KiB it makes no
// difference that shows (AllReduce and Broadcast, 4 ranks).
const shareMin = 4 << 10

// fireShared is the rest of fire where several peers are sent the same bytes and all of them can read this rank's
// pool.
func (e *Engine) fireShared(l *lane, a *action, call *link.Call, n int, lent bool) (bool, error) {
	b, ok := a.shared.Reserve(n)
	if !ok {
		return false, nil
	}
	n = len(b)
	dsts := e.dsts[:0]
	if a.keeps() {
		dsts = append(dsts, l.part(&a.dst, n))
	}
	dsts = append(dsts, b)
	srcs, err := e.sources(l, a, dsts, n)
	if srcs == nil {
		return false, err
	}
	e.combine(l, a, dsts, srcs, n)
	if err := e.stillLent(lent); err != nil {
		return false, err
	}
	a.shared.Commit(call)
	l.moved(a, n)
	return true, nil
}

// stillLent says that what was read of a peer's memory, if it was, may be sent on: the peer, who has it back when its
// call has failed, and may change it, tells all ranks of the failure first.
func (e *Engine) stillLent(lent bool) error {
	if lent {
		e.read.Store(true) // keeps the reads before it and the look behind it, as a load alone would not everywhere
		if n := e.mesh.Failed(); n != nil {
			return &Gone{n}
		}
	}
	return nil
}

// keeps reports whether the action's value is stored in its destination.
func (a *action) keeps() bool { return a.hasDst && (a.store || len(a.sends) == 0) }

// shares reports whether the next n bytes of the action are copied once for all its receivers: not where one lets it
// place its result.
func (l *lane) shares(a *action, n int) bool {
	if a.shared == nil || n < shareMin {
		return false
	}
	return !a.placeable || !slices.ContainsFunc(a.sendTo, func(p *link.Peer) bool { return l.answerOf(p.Rank) != nil })
}

// blocked calls f for the peers without which there is no room for what the lane's action sends.
func (l *lane) blocked(a *action, f func(*link.Peer)) {
	rest := l.rest(a)
	n := min(rest, l.job.Plan.piece)
	for _, r := range a.receives {
		if m, _ := r.Peek(l.expects(a)); m != nil {
			n = min(n, m.Len)
		}
	}
	if l.shares(a, n) {
		a.shared.Waiting(n, f)
		return
	}
	for i, s := range a.sends {
		if _, ok := s.Reserve(rest); !ok {
			f(a.sendTo[i])
		}
	}
}

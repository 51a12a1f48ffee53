package executor

import (
	"github.com/gccl/gccl/internal/link"
)

// answer notes where a peer lets this lane place results.
func (l *lane) answer(rank int, b []byte) {
	if len(l.answers) <= rank {
		l.answers = append(l.answers, make([][]byte, rank+1-len(l.answers))...)
	}
	l.answers[rank] = b
}

// answerOf returns where a peer lets this lane place results, or nil.
func (l *lane) answerOf(rank int) []byte {
	if rank >= len(l.answers) {
		return nil
	}
	return l.answers[rank]
}

// place returns the peer's memory for the rest of the i-th send of an action, if its result may be
// placed there: the finished chunk of Out goes to the same chunk of the peer's Out. At the end of the transfer that is
// empty and not nil.
func (e *Engine) place(l *lane, a *action, i int) []byte {
	if !a.placeable || l.size > link.MaxMessage {
		return nil
	}
	b := l.answerOf(a.sendTo[i].Rank)
	off, _ := a.dst.at(l.window, l.job.Plan.Layout.Elem)
	if b == nil || off+l.size > len(b) {
		return nil
	}
	return b[off+l.done : off+l.size]
}

// notify tells the peers whose memory was written. It reports whether all have been told.
func (e *Engine) notify(l *lane, a *action, call *link.Call) bool {
	for i := -l.placed - 1; i < len(a.sends); i++ {
		l.placed = -i - 1
		if e.place(l, a, i) != nil && !a.sends[i].(link.Lender).Placed(l.size, call) {
			return false
		}
	}
	l.placed = 0
	return true
}

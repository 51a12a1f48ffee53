package agree

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// The reductions: states that the checker need not look at, because others that it does look at show all that
// they could show. TestReductions compares what can be decided with and without them.
//
//   - A death happens when it is first noticed. Until then a dead rank does not differ from one that does nothing
//     yet: what it had sent arrives, and what is sent to it waits. Nothing is over before the death is noticed,
//     as somebody will notice it.
//   - What a dead rank had sent is lost at that moment or never.
//   - What cannot have an effect is taken off the way at once (settle).
//   - Of a rank that is gone only that is told apart which the invariants ask for: whether it contributed, and
//     what was decided, by whomever. That is an upper bound of what it may have told.
//   - The AND of the flags heard of (Least, and Flags of Collect) is left out of the keys: no machine's step
//     depends on it as long as a flag is left, and there are more flags than ranks here.
//
// With fifo, what follows an Out on the way is not told apart either: who reads an Out from a rank that it does not
// suspect is out.

// appendDeaths adds the ways in which rank r may find out that q has just died: what q has sent to others is
// on its way or lost.
func (w *world) appendDeaths(out []event, r, q int) []event {
	var sent []int
	for i := range w.net {
		if w.net[i].From == q && w.net[i].To != r { // what r gets from a rank that is gone has no effect
			sent = append(sent, i)
		}
	}
	for kept := range 1 << len(sent) {
		var lost []int
		for k, i := range sent {
			if kept>>k&1 == 0 {
				lost = append(lost, i)
			} else if w.b.fifo && k > 0 && kept>>(k-1)&1 == 0 && same(&w.net[sent[k-1]], &w.net[i]) {
				lost = nil // not the first ones
				goto next
			}
		}
		out = append(out, event{fmt.Sprintf("rank %d finds that %d has died, and the messages %v are lost", r, q, lost), true, func(w *world) {
			w.deaths++
			w.dead[q] = true
			for _, i := range slices.Backward(lost) {
				w.net = slices.Delete(w.net, i, i+1)
			}
			w.suspect(r, q, true)
		}})
	next:
	}
	return out
}

// settle takes messages off the way that have no effect, and forgets what does not matter any more.
func (w *world) settle() {
	w.net = slices.DeleteFunc(w.net, func(m flight) bool { return w.gone(m.To) })
	if w.b.plain {
		return
	}
	w.net = slices.DeleteFunc(w.net, func(m flight) bool {
		if !w.machines[m.To].suspects.Has(m.From) {
			return false
		}
		// The answer to anything but an Out is an Out; it changes nothing for who is gone or suspects the other.
		return m.Kind == Out || w.gone(m.From) || w.machines[m.From].suspects.Has(m.To)
	})
	kept := w.net[:0]
	for i := range w.net {
		m := &w.net[i]
		if n := len(kept); n > 0 && kept[n-1].Kind == Out && same(&kept[n-1], m) && (w.b.fifo || m.Kind == Out) {
			continue // the receiver is out by then
		}
		kept = append(kept, *m)
	}
	w.net = kept
	for i := range w.accepted {
		for r := range w.b.ranks {
			if w.gone(r) {
				w.accepted[i].by &^= 1 << r
			}
		}
	}
	w.accepted = slices.DeleteFunc(w.accepted, func(a accepted) bool { return a.by == 0 || w.b.slanders == 0 })
	for r := range w.b.ranks {
		w.slandered[r] = w.slandered[r] && !w.gone(r)
	}
}

// outcomes appends the values that have been decided in each round, by whomever.
func (w *world) outcomes(b []byte) []byte {
	for i := range w.b.rounds {
		var vs []value
		for r := range w.b.ranks {
			if v := w.decided[r][i]; v != 0 && !slices.Contains(vs, v) {
				vs = append(vs, v)
			}
		}
		slices.Sort(vs)
		b = append(b, byte(len(vs)))
		for _, v := range vs {
			b = binary.BigEndian.AppendUint16(b, uint16(v))
		}
	}
	return b
}

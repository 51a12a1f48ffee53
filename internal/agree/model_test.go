package agree

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// The model: the machines of a small group, with everything that may happen to them: the orders in which messages
// arrive, ranks call, die, lose what they had sent, and are suspected, rightly or not. What may never happen is in
// wrong. model_explore_test.go looks at all states that can be reached.

// bounds say what may happen in a model.
type bounds struct {
	ranks, rounds int
	deaths        int // ranks that may die
	slanders      int // suspicions of ranks that live
	fifo          bool
	walks         int  // random walks instead of everything; 0: everything
	plain         bool // without the reductions of model_reduce_test.go
	sure          bool // suspicions of ranks that live pass for certain
	bug           func(*Machine)
}

// The largest group and number of rounds.
const (
	mostRanks  = 5
	mostRounds = 3
)

// value is an outcome in short: the failed ranks, and those whose flag is cleared. 0 is none.
type value uint16

func valueOf(o *Outcome) value { return value(o.Failed[0])<<8 | value(^o.Flags&0xff) }

func (v value) failed(r int) bool { return v>>(8+r)&1 != 0 }
func (v value) took(r int) bool   { return v>>r&1 != 0 }

func (v value) String() string { return fmt.Sprintf("failed %b contributed %b", v>>8, v&0xff) }

// flight is a message on the way, and its bytes.
type flight struct {
	Message
	code string
}

// accepted says which ranks have ever accepted a value.
type accepted struct {
	round uint8
	v     value
	by    uint8
}

// world is a state of the model. Machines are shared between states: touch gives a state its own.
type world struct {
	b        *bounds
	machines [mostRanks]*Machine
	dead     [mostRanks]bool
	net      []flight // on the way, sorted; with fifo, those of a pair of ranks in order
	deaths   int
	slanders int

	// What has happened, for the invariants.
	slandered [mostRanks]bool
	calls     [mostRanks]int               // rounds that a rank has contributed to
	decided   [mostRanks][mostRounds]value // what a rank decided, by round
	accepted  []accepted                   // sorted
}

func newWorld(b *bounds) *world {
	w := &world{b: b}
	for r := range b.ranks {
		w.machines[r] = New(r, b.ranks)
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.net, c.accepted = slices.Clone(w.net), slices.Clone(w.accepted)
	return &c
}

// touch returns a machine that is about to change.
func (w *world) touch(r int) *Machine {
	w.machines[r] = w.machines[r].clone()
	return w.machines[r]
}

func (m *Machine) clone() *Machine {
	c := *m
	c.suspects, c.certain, c.silent, c.outbox = m.suspects.Clone(), m.certain.Clone(), m.silent.Clone(), nil
	c.cur.accepts = m.cur.accepts.Clone()
	c.cur.parts = maps.Clone(m.cur.parts)
	return &c
}

// key is what tells states apart.
func (w *world) key(b []byte) []byte {
	for r := range w.b.ranks {
		m := w.machines[r]
		b = append(b, flag(w.dead[r]), flag(m.out), flag(w.slandered[r]), byte(w.calls[r]))
		if w.b.plain || !w.gone(r) {
			b = m.key(b, w.b)
		}
		if w.b.plain {
			for _, v := range w.decided[r] {
				b = binary.BigEndian.AppendUint16(b, uint16(v))
			}
		}
	}
	b = append(b, byte(w.deaths), byte(w.slanders))
	for _, a := range w.accepted {
		b = append(b, a.round, byte(a.v>>8), byte(a.v), a.by)
	}
	b = append(b, 0xff)
	if !w.b.plain {
		b = w.outcomes(b)
	}
	for i := range w.net {
		b = append(b, w.net[i].code...)
	}
	return b
}

func (m *Machine) key(b []byte, bounds *bounds) []byte {
	s := &m.cur
	b = append(b, flag(m.abandoned), flag(s.started), flag(s.collected), byte(s.toldTo+1), byte(m.round), byte(s.ballot+1))
	b = append(b, byte(m.suspects[0]), byte(m.certain[0]), byte(m.silent[0]))
	if bounds.plain {
		b = append(b, byte(^s.least))
	}
	b = appendValue(appendValue(appendValue(b, m.prev), s.accepted), s.proposed)
	if s.accepts == nil {
		b = append(b, 0xff)
	} else {
		b = append(b, byte(s.accepts[0]))
	}
	for q := range m.size {
		if p, ok := s.parts[q]; ok {
			b = appendValue(append(b, byte(q+1), byte(p.ballot+1)), p.value)
		}
	}
	return append(b, 0xff)
}

func appendValue(b []byte, o *Outcome) []byte {
	if o == nil {
		return append(b, 0, 0)
	}
	return binary.BigEndian.AppendUint16(b, uint16(valueOf(o)))
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// gone reports whether a rank does nothing any more: it has died, or left because it is out.
func (w *world) gone(r int) bool { return w.dead[r] || w.machines[r].out }

// event is one thing that may happen next.
type event struct {
	name  string
	fault bool // no progress that one could wait for
	do    func(w *world)
}

// events lists what may happen in a state.
func (w *world) events() []event {
	var out []event
	for r, m := range w.machines[:w.b.ranks] {
		if w.gone(r) {
			continue
		}
		if w.calls[r] < w.b.rounds && m.round == uint64(w.calls[r]+1) && !m.cur.started {
			out = append(out, event{fmt.Sprintf("rank %d calls", r), false, func(w *world) {
				w.calls[r]++
				w.touch(r).Start(0, ^(uint64(1) << r))
				w.after(r)
			}})
		}
		if w.b.plain && w.deaths < w.b.deaths {
			out = append(out, event{fmt.Sprintf("rank %d dies", r), true, func(w *world) {
				w.deaths++
				w.dead[r] = true
			}})
		}
		for q := range w.b.ranks {
			if q == r {
				continue
			}
			if w.gone(q) && !m.certain.Has(q) {
				out = append(out, event{fmt.Sprintf("rank %d finds %d gone", r, q), false, func(w *world) { w.suspect(r, q, true) }})
			}
			if !w.gone(q) && !m.suspects.Has(q) && w.slanders < w.b.slanders {
				out = append(out, event{fmt.Sprintf("rank %d takes %d for gone", r, q), true, func(w *world) {
					w.slanders++
					w.slandered[q] = true
					w.suspect(r, q, w.b.sure)
				}})
			}
			if !w.b.plain && !w.gone(q) && !m.certain.Has(q) && w.deaths < w.b.deaths {
				out = w.appendDeaths(out, r, q)
			}
		}
	}
	for i := range w.net {
		out = w.appendMessage(out, i)
	}
	return out
}

func (w *world) suspect(r, q int, certain bool) {
	w.touch(r).Suspect(q, certain)
	w.after(r)
}

// appendMessage adds what may become of a message.
func (w *world) appendMessage(out []event, i int) []event {
	msg := &w.net[i]
	first, last := true, true
	if w.b.fifo {
		first, last = i == 0 || !same(&w.net[i-1], msg), i == len(w.net)-1 || !same(&w.net[i+1], msg)
	} else if i > 0 && w.net[i-1].code == msg.code {
		return out // nobody can tell them apart
	}
	if first {
		out = append(out, event{fmt.Sprintf("%d→%d kind %d round %d arrives", msg.From, msg.To, msg.Kind, msg.Round), false, func(w *world) {
			msg := w.net[i].Message
			w.net = slices.Delete(w.net, i, i+1)
			w.touch(msg.To).Step(msg)
			w.after(msg.To)
		}})
	}
	if w.b.plain && last && w.dead[msg.From] {
		out = append(out, event{fmt.Sprintf("%d→%d kind %d is lost", msg.From, msg.To, msg.Kind), false, func(w *world) { w.net = slices.Delete(w.net, i, i+1) }})
	}
	return out
}

// same reports whether two messages are of the same pair of ranks.
func same(a, b *flight) bool { return a.From == b.From && a.To == b.To }

// after takes a machine's messages and notes what it has done.
func (w *world) after(r int) {
	m := w.machines[r]
	if w.b.bug != nil {
		w.b.bug(m)
	}
	for _, msg := range m.Take() {
		w.post(msg)
	}
	if m.prev != nil && !m.out {
		if p := &w.decided[r][m.round-2]; *p == 0 {
			*p = valueOf(m.prev)
			w.accept(r, m.round-1, m.prev) // a decision counts as accepted
		}
	}
	if m.cur.accepted != nil {
		w.accept(r, m.round, m.cur.accepted)
	}
}

// post puts a message on its way.
func (w *world) post(msg Message) {
	coded := msg
	if !w.b.plain && msg.Kind == Collect {
		coded.Flags = 0 // see reductions
	}
	f := flight{msg, string(coded.Append([]byte{byte(msg.From), byte(msg.To)}))}
	i := len(w.net)
	for i > 0 && (w.net[i-1].code[:2] > f.code[:2] || !w.b.fifo && w.net[i-1].code > f.code) {
		i--
	}
	w.net = slices.Insert(w.net, i, f)
}

func (w *world) accept(r int, round uint64, o *Outcome) {
	a := accepted{uint8(round), valueOf(o), 0}
	i, ok := slices.BinarySearchFunc(w.accepted, a, func(x, y accepted) int {
		return (int(x.round)-int(y.round))<<16 + int(x.v) - int(y.v)
	})
	if !ok {
		w.accepted = slices.Insert(w.accepted, i, a)
	}
	w.accepted[i].by |= 1 << r
}

// wrong returns the invariant that a state breaks, or "".
func (w *world) wrong(quiet bool) string {
	for r, m := range w.machines[:w.b.ranks] {
		if m.suspects.Has(r) || !m.suspects.Contains(m.certain) {
			return fmt.Sprintf("rank %d suspects %v, certainly %v", r, m.suspects.Ranks(), m.certain.Ranks())
		}
		if m.prev != nil && !m.out {
			v := valueOf(m.prev)
			if v.failed(r) {
				return fmt.Sprintf("2: rank %d decides that it has failed", r)
			}
			for q := range w.b.ranks {
				if !v.failed(q) && (w.calls[q] < int(m.round-1) || !v.took(q)) {
					return fmt.Sprintf("3: rank %d decides %v, but %d has not contributed", r, v, q)
				}
				if v.failed(q) && !w.gone(q) && !w.slandered[q] {
					return fmt.Sprintf("4: rank %d decides %v, but nobody suspected %d", r, v, q)
				}
			}
		}
		for q := range r {
			for i, v := range w.decided[r] {
				if u := w.decided[q][i]; u != 0 && v != 0 && u != v && !w.allGone(i+1, u) && !w.allGone(i+1, v) {
					return fmt.Sprintf("1: round %d: rank %d decides %v, rank %d decides %v", i+1, r, v, q, u)
				}
			}
		}
	}
	if !quiet {
		return ""
	}
	for r, m := range w.machines[:w.b.ranks] {
		if w.gone(r) || m.round > uint64(w.b.rounds) {
			continue
		}
		if c := m.Coordinator(); w.gone(c) || !w.machines[c].Stuck() || m.quorum() {
			return fmt.Sprintf("5: nothing more happens, and rank %d waits in round %d for %v", r, m.round, m.Missing())
		}
	}
	return ""
}

// allGone reports whether all that accepted a value are gone, and there were suspicions of living ranks.
func (w *world) allGone(round int, v value) bool {
	if w.slanders == 0 {
		return false
	}
	for _, a := range w.accepted {
		if int(a.round) != round || a.v != v {
			continue
		}
		for r := range w.b.ranks {
			if a.by>>r&1 != 0 && !w.gone(r) {
				return false
			}
		}
	}
	return true
}

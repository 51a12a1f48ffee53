package agree

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model checker: it drives the machines of a small group through every order in which messages can
// arrive, ranks can call, die, lose what they had sent, and be suspected, rightly or not, and looks at
// every state that can be reached once.

// bounds say what may happen in a model.
type bounds struct {
	ranks, rounds int
	deaths        int // ranks that may die
	slanders      int // suspicions of ranks that live
	fifo          bool
	walks         int  // random walks instead of everything; 0: everything
	sure          bool // suspicions of ranks that live pass for certain
	bug           func(*Machine)
}

// world is a state of the model.
type world struct {
	b        bounds
	machines []*Machine
	dead     []bool
	net      []Message // on the way; with fifo, those of a pair of ranks in order
	deaths   int
	slanders int

	// What has happened, for the invariants.
	slandered Set
	calls     []int               // rounds that a rank has contributed to
	decided   []map[uint64]string // by rank: what it decided, by round
	accepted  map[string]Set      // "round value" → ranks that have accepted it
}

func newWorld(b bounds) *world {
	w := &world{b: b, dead: make([]bool, b.ranks), calls: make([]int, b.ranks), slandered: NewSet(b.ranks), accepted: map[string]Set{}}
	for r := range b.ranks {
		w.machines = append(w.machines, New(r, b.ranks))
		w.decided = append(w.decided, map[uint64]string{})
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.machines = make([]*Machine, len(w.machines))
	c.decided = make([]map[uint64]string, len(w.decided))
	for r, m := range w.machines {
		c.machines[r] = m.clone()
		c.decided[r] = map[uint64]string{}
		for k, v := range w.decided[r] {
			c.decided[r][k] = v
		}
	}
	c.dead, c.calls, c.slandered = slices.Clone(w.dead), slices.Clone(w.calls), w.slandered.Clone()
	c.net = slices.Clone(w.net)
	c.accepted = map[string]Set{}
	for k, v := range w.accepted {
		c.accepted[k] = v.Clone()
	}
	return &c
}

func (m *Machine) clone() *Machine {
	c := *m
	c.suspects, c.certain, c.silent, c.outbox = m.suspects.Clone(), m.certain.Clone(), m.silent.Clone(), nil
	c.cur.accepts = m.cur.accepts.Clone()
	if m.cur.parts != nil {
		c.cur.parts = map[int]part{}
		for r, p := range m.cur.parts {
			c.cur.parts[r] = p
		}
	}
	return &c
}

// key is what tells states apart.
func (w *world) key() []byte {
	var b []byte
	for r, m := range w.machines {
		s := &m.cur
		b = append(b, flag(w.dead[r]), flag(m.out), flag(m.abandoned), flag(s.started), flag(s.collected), byte(s.toldTo+1), byte(m.round), byte(s.ballot+1), byte(w.calls[r]))
		b = appendSet(appendSet(appendSet(b, m.suspects), m.certain), m.silent)
		b = binary.BigEndian.AppendUint64(b, s.least)
		b = appendOutcome(appendOutcome(appendOutcome(b, m.prev), s.accepted), s.proposed)
		b = append(b, flag(s.accepts != nil))
		b = appendSet(b, s.accepts)
		for q := range w.machines {
			if p, ok := s.parts[q]; ok {
				b = append(b, byte(q+1), byte(p.ballot+1))
				b = appendOutcome(b, p.value)
			}
		}
		b = append(b, 0xff)
		for round := range uint64(w.b.rounds) {
			b = append(append(b, w.decided[r][round+1]...), 0)
		}
	}
	b = append(b, byte(w.deaths), byte(w.slanders))
	lines := make([]string, len(w.net))
	for i := range w.net {
		m := &w.net[i]
		lines[i] = string(m.Append([]byte{byte(m.From), byte(m.To)}))
	}
	if w.b.fifo {
		slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:2], b[:2]) })
	} else {
		slices.Sort(lines)
	}
	for _, l := range lines {
		b = append(b, l...)
	}
	return b
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (o *Outcome) text() string { return fmt.Sprintf("failed %v flags %x", o.Failed.Ranks(), o.Flags) }

// gone reports whether a rank does nothing any more: it has died, or left because it is out.
func (w *world) gone(r int) bool { return w.dead[r] || w.machines[r].out }

// event is one thing that may happen next.
type event struct {
	name string
	do   func(w *world)
}

// events lists what may happen in a state.
func (w *world) events() []event {
	var out []event
	for r, m := range w.machines {
		if w.gone(r) {
			continue
		}
		if w.calls[r] < w.b.rounds && m.round == uint64(w.calls[r]+1) && !m.cur.started {
			out = append(out, event{fmt.Sprintf("rank %d calls", r), func(w *world) {
				w.calls[r]++
				w.machines[r].Start(0, ^(uint64(1) << r))
				w.after(r)
			}})
		}
		if w.deaths < w.b.deaths {
			out = append(out, event{fmt.Sprintf("rank %d dies", r), func(w *world) {
				w.deaths++
				w.dead[r] = true
			}})
		}
		for q := range w.machines {
			switch {
			case q == r:
			case w.gone(q) && !m.certain.Has(q):
				out = append(out, event{fmt.Sprintf("rank %d finds %d gone", r, q), func(w *world) {
					w.machines[r].Suspect(q, true)
					w.after(r)
				}})
			case !w.gone(q) && !m.suspects.Has(q) && w.slanders < w.b.slanders:
				out = append(out, event{fmt.Sprintf("rank %d takes %d for gone", r, q), func(w *world) {
					w.slanders++
					w.slandered.Add(q)
					w.machines[r].Suspect(q, w.b.sure)
					w.after(r)
				}})
			}
		}
	}
	for i, msg := range w.net {
		first, last := true, true
		for j, o := range w.net {
			if w.b.fifo && o.From == msg.From && o.To == msg.To {
				first, last = first && j >= i, last && j <= i
			}
		}
		if first {
			out = append(out, event{fmt.Sprintf("%d→%d kind %d round %d arrives", msg.From, msg.To, msg.Kind, msg.Round), func(w *world) {
				w.net = slices.Delete(w.net, i, i+1)
				w.machines[msg.To].Step(msg)
				w.after(msg.To)
			}})
		}
		if last && w.dead[msg.From] {
			out = append(out, event{fmt.Sprintf("%d→%d kind %d is lost", msg.From, msg.To, msg.Kind), func(w *world) { w.net = slices.Delete(w.net, i, i+1) }})
		}
	}
	return out
}

// after takes a machine's messages and notes what it has done.
func (w *world) after(r int) {
	m := w.machines[r]
	if w.b.bug != nil {
		w.b.bug(m)
	}
	w.net = append(w.net, m.Take()...)
	if m.prev != nil && !m.out {
		if _, ok := w.decided[r][m.round-1]; !ok {
			w.decided[r][m.round-1] = m.prev.text()
			w.accept(r, m.round-1, m.prev) // a decision counts as accepted
		}
	}
	if m.cur.accepted != nil {
		w.accept(r, m.round, m.cur.accepted)
	}
}

func (w *world) accept(r int, round uint64, v *Outcome) {
	k := fmt.Sprint(round, " ", v.text())
	if w.accepted[k] == nil {
		w.accepted[k] = NewSet(w.b.ranks)
	}
	w.accepted[k].Add(r)
}

// forget removes messages that nobody will read.
func (w *world) forget() {
	w.net = slices.DeleteFunc(w.net, func(m Message) bool { return w.gone(m.To) })
}

// wrong returns the invariant that a state breaks, or "".
func (w *world) wrong(quiet bool) string {
	for r, m := range w.machines {
		if m.suspects.Has(r) || !m.suspects.Contains(m.certain) {
			return fmt.Sprintf("rank %d suspects %v, certainly %v", r, m.suspects.Ranks(), m.certain.Ranks())
		}
		if m.prev != nil && !m.out {
			f := m.prev.Failed
			if f.Has(r) {
				return fmt.Sprintf("2: rank %d decides that it has failed", r)
			}
			for q := range w.machines {
				if !f.Has(q) && (w.calls[q] < int(m.round-1) || m.prev.Flags>>q&1 != 0) {
					return fmt.Sprintf("3: rank %d decides %s, but %d has not contributed", r, m.prev.text(), q)
				}
				if f.Has(q) && !w.gone(q) && !w.slandered.Has(q) {
					return fmt.Sprintf("4: rank %d decides %s, but nobody suspected %d", r, m.prev.text(), q)
				}
			}
		}
		for q := range r {
			for round, v := range w.decided[r] {
				if u, ok := w.decided[q][round]; ok && u != v && !w.allGone(round, u) && !w.allGone(round, v) {
					return fmt.Sprintf("1: round %d: rank %d decides %s, rank %d decides %s", round, r, v, q, u)
				}
			}
		}
	}
	if !quiet {
		return ""
	}
	for r, m := range w.machines {
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
func (w *world) allGone(round uint64, v string) bool {
	if w.slanders == 0 {
		return false
	}
	for _, r := range w.accepted[fmt.Sprint(round, " ", v)].Ranks() {
		if !w.gone(r) {
			return false
		}
	}
	return true
}

// explore visits the states of a model and returns how many there are, and the story of the first that
// is wrong.
func explore(b bounds) (states int, story []string) {
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{}
	rng := rand.New(rand.NewPCG(1, uint64(b.ranks)))
	var visit func(w *world, path []string) []string
	visit = func(w *world, path []string) []string {
		w.forget()
		h := maphash.Bytes(seed, w.key())
		if _, ok := seen[h]; ok && b.walks == 0 {
			return nil
		}
		seen[h] = struct{}{}
		es := w.events()
		// Deaths and slander are no progress that one could wait for.
		quiet := !slices.ContainsFunc(es, func(e event) bool {
			return !strings.HasSuffix(e.name, "dies") && !strings.Contains(e.name, "takes")
		})
		if why := w.wrong(quiet); why != "" {
			return append(slices.Clone(path), why)
		}
		if b.walks > 0 && len(es) > 1 { // one of them
			i := rng.IntN(len(es))
			for range 2 { // failures are rarer than messages
				if strings.HasSuffix(es[i].name, "dies") || strings.Contains(es[i].name, "takes") {
					i = rng.IntN(len(es))
				}
			}
			es = es[i : i+1]
		}
		for _, e := range es {
			next := w.clone()
			e.do(next)
			if s := visit(next, append(path, e.name)); s != nil {
				return s
			}
		}
		return nil
	}
	for range max(1, b.walks) {
		if story = visit(newWorld(b), nil); story != nil {
			break
		}
	}
	return len(seen), story
}

// Every order of messages, calls, deaths, losses and suspicions of small groups. GCCL_PROVE=1 takes the
// larger models, too, for some minutes.
func TestModel(t *testing.T) {
	models := []bounds{
		{ranks: 2, rounds: 2, deaths: 2, slanders: 1},
		{ranks: 3, rounds: 1, deaths: 3},
		{ranks: 3, rounds: 2, deaths: 2, slanders: 1, walks: 2000},
		{ranks: 4, rounds: 2, deaths: 3, slanders: 1, walks: 2000},
	}
	if os.Getenv("GCCL_PROVE") != "" {
		models = []bounds{
			{ranks: 3, rounds: 1, deaths: 2, slanders: 1},
			{ranks: 3, rounds: 2, deaths: 3, fifo: true},
			{ranks: 3, rounds: 1, deaths: 3, slanders: 2, fifo: true},
			{ranks: 4, rounds: 2, deaths: 4, slanders: 2, walks: 200_000},
			{ranks: 5, rounds: 3, deaths: 3, slanders: 2, walks: 100_000},
		}
	}
	for _, b := range models {
		n, story := explore(b)
		t.Logf("%d ranks, %d rounds, %d deaths, %d slanders, fifo %v, %d walks: %d states", b.ranks, b.rounds, b.deaths, b.slanders, b.fifo, b.walks, n)
		require.Nil(t, story, strings.Join(story, "\n"))
	}
}

// The checker sees protocols that are wrong.
func TestModelFindsBugs(t *testing.T) {
	for name, bug := range map[string]func(m *Machine){
		"1: ": func(m *Machine) { // a member forgets what it has accepted
			if m.Coordinator() != m.rank {
				m.cur.accepted, m.cur.ballot = nil, -1
			}
		},
		"3: ": func(m *Machine) { // a coordinator does not wait for contributions
			if m.cur.started && m.Coordinator() == m.rank && m.cur.parts == nil {
				m.cur.parts = map[int]part{}
				for r := range m.size {
					m.cur.parts[r] = part{flags: ^uint64(0), ballot: -1}
				}
				m.consider(false)
			}
		},
		"5: ": func(m *Machine) { m.cur.toldTo = m.Coordinator() }, // a member does not turn to the next coordinator
	} {
		_, story := explore(bounds{ranks: 3, rounds: 1, deaths: 2, fifo: true, bug: bug})
		require.NotNil(t, story, name)
		require.Contains(t, story[len(story)-1], name, strings.Join(story, "\n"))
	}
	_, story := explore(bounds{ranks: 3, rounds: 1, slanders: 1, sure: true, fifo: true})
	require.NotNil(t, story, "a rank that lives is taken for certainly gone")
}

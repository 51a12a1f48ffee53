package rail

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model checker: two ends, each with Sender and Receiver, and rails that break at any moment in one or both
// directions, are noticed at any time, or are given up for no reason. Every state that can be reached is looked
// at once.

const (
	mostRails  = 3
	mostFrames = 2 // on the way in one direction of a rail: the next does not fit
	mostWrites = 3
)

type kind uint8

const (
	none kind = iota
	piece
	lost
	again
	landed
)

// frame is what crosses. n is the number of a write, or of writes.
type frame struct {
	kind  kind
	n     uint8
	piece uint8
	round uint8
	dead  Set
}

// half is an end of the connection.
type half struct {
	s    Sender
	r    Receiver
	live Set

	next, given, done uint8 // sending: pieces of next that were given; writes that have landed
	lostDue           Set
	marked            [mostRails]uint8
	ackDue            bool

	seq    uint8 // receiving: the write being landed
	got    uint8 // pieces of it, counted
	have   uint8 // pieces of it, in truth
	number uint8 // what the next "lost" says

	landing [mostRails]frame // a piece that is half there
}

// world is a state of the model.
type world struct {
	half   [2]half
	wire   [mostRails][2][mostFrames]frame // by direction: from end 0, from end 1
	cut    [mostRails][2]bool
	breaks uint8 // that may still happen
}

// model is what may happen.
type model struct {
	rails, breaks int
	writes        [2][]uint8 // pieces of each
	bug           func(w *world, e int, what string) bool

	seen  map[uint64]struct{}
	seed  maphash.Seed
	path  []string
	walks int
}

func (m *model) first() *world {
	w := &world{breaks: uint8(m.breaks)}
	for e := range w.half {
		w.half[e] = half{r: NewReceiver(m.rails), live: First(m.rails)}
	}
	return w
}

func (m *model) on(w *world, e int, what string) bool { return m.bug != nil && m.bug(w, e, what) }

// full reports whether a rail takes no more frames.
func (w *world) full(rail, e int) bool {
	return !w.cut[rail][e] && w.wire[rail][e][mostFrames-1].kind != none
}

// put sends a frame.
func (w *world) put(rail, e int, f frame) {
	q := &w.wire[rail][e]
	for i := range q {
		if q[i].kind == none && !w.cut[rail][e] { // else it is on its way to nowhere
			q[i] = f
			return
		}
	}
}

func (w *world) take(rail, e int) {
	q := &w.wire[rail][1-e]
	copy(q[:], q[1:])
	q[mostFrames-1] = frame{}
}

func lead(s Set) int {
	for i := range Max {
		if s.Has(i) {
			return i
		}
	}
	return -1
}

// giveUp is an end that closes its end of a rail.
func (m *model) giveUp(w *world, e, i int) {
	h := &w.half[e]
	if !h.live.Has(i) {
		return
	}
	h.live = h.live.Without(i)
	h.s.Lose(i)
	h.r.Lose(i)
	h.landing[i] = frame{}
	h.lostDue = h.live
	h.number = h.seq
	for f := range 2 {
		w.cut[i][f] = true // for what is sent from now on
	}
	w.wire[i][1-e] = [mostFrames]frame{} // this end reads it no more
}

// send gives rail i its next frame, if it has one. It is what fillLocked does.
func (m *model) send(w *world, e, i int) (done bool, err error) {
	h := &w.half[e]
	round, first := h.s.Round()
	switch {
	case !h.live.Has(i), w.full(i, e):
		return false, nil
	case h.lostDue.Has(i):
		h.lostDue = h.lostDue.Without(i)
		w.put(i, e, frame{kind: lost, n: h.number, dead: h.s.Dead()})
		return true, nil
	case h.marked[i] != uint8(round):
		h.marked[i] = uint8(round)
		w.put(i, e, frame{kind: again, n: uint8(first), round: h.marked[i]})
		return true, nil
	case h.ackDue:
		h.ackDue = false
		w.put(i, e, frame{kind: landed, n: h.seq})
		return true, nil
	case h.s.Held() && !m.on(w, e, "held"), int(h.next) == len(m.writes[e]):
		return false, nil
	}
	pieces := m.writes[e][h.next]
	if pieces == 1 && i != lead(h.live) {
		return false, nil
	}
	f := frame{kind: piece, n: h.next, piece: h.given}
	if h.given++; h.given == pieces {
		h.given = 0
		h.next++
	}
	w.put(i, e, f)
	return true, nil
}

// receive takes the next frame of rail i. moved: it is off the wire.
func (m *model) receive(w *world, e, i int) (moved bool, err error) {
	h := &w.half[e]
	f := w.wire[i][1-e][0]
	if !h.live.Has(i) || f.kind == none || h.landing[i].kind != none {
		return false, nil
	}
	switch f.kind {
	case landed:
		if err := h.s.Landed(uint64(f.n), uint64(h.next)); err != nil {
			return false, err
		}
		h.finish(f.n)
	case lost:
		for k := range m.rails {
			if f.dead.Has(k) {
				m.giveUp(w, e, k)
			}
		}
		if h.live == 0 {
			return true, nil
		}
		fresh, err := h.s.Told(f.dead, uint64(f.n), uint64(h.done), uint64(h.next))
		if err != nil {
			return false, err
		}
		if fresh {
			h.finish(f.n)
			h.next, h.given = max(f.n, h.done), 0
		}
	case again:
		fresh, err := h.r.Again(i, uint32(f.round), uint64(f.n), uint64(h.seq))
		if err != nil {
			return false, err
		}
		if fresh {
			h.got, h.have = 0, 0
			for k := range m.rails {
				if h.r.Stale(k) && !m.on(w, e, "stale") {
					h.landing[k] = frame{}
				}
			}
		}
	case piece:
		before := h.r
		switch v := h.r.Judge(i, uint64(f.n), uint64(h.seq)); v {
		case Park:
			return false, nil
		case Bad:
			return false, fmt.Errorf("end %d rail %d: refused a piece of %d", e, i, f.n)
		case Drop:
			if f.n > h.seq && !before.Stale(i) && m.on(w, e, "stuck") {
				h.r = before
				return false, nil
			}
			if f.n < h.seq {
				h.ackDue = true
			}
		case Land:
			h.landing[i] = f
		}
	}
	w.take(i, e)
	return true, nil
}

// finish notes the number of landed writes that the peer has told.
func (h *half) finish(n uint8) {
	h.done = max(h.done, n)
	if h.next < h.done {
		h.next, h.given = h.done, 0
	}
}

// land stores the rest of a piece.
func (m *model) land(w *world, e, i int) error {
	h, peer := &w.half[e], &w.half[1-e]
	f := h.landing[i]
	h.landing[i] = frame{}
	if f.n < peer.done {
		return fmt.Errorf("end %d: a piece of write %d is stored after its sender was told that it had landed", e, f.n)
	}
	if f.n != h.seq {
		return fmt.Errorf("end %d: a piece of write %d is stored, %d is expected", e, f.n, h.seq)
	}
	h.got++
	h.have |= 1 << f.piece
	if pieces := m.writes[1-e][h.seq]; h.got == pieces {
		if h.have != 1<<pieces-1 {
			return fmt.Errorf("end %d: write %d is announced with pieces %b of %d", e, f.n, h.have, pieces)
		}
		h.got, h.have = 0, 0
		h.seq++
		h.ackDue = true
		h.r.Finished()
	}
	return nil
}

// whole reports whether all that an end has to send has landed, as it knows.
func (m *model) whole(w *world, e int) bool { return int(w.half[e].done) == len(m.writes[e]) }

// check looks at a state from which nothing but breaks can follow.
func (m *model) check(w *world) error {
	for e := range w.half {
		if w.half[e].live == 0 {
			return nil // both ends notice
		}
	}
	for e := range w.half {
		if !m.whole(w, e) || int(w.half[1-e].seq) != len(m.writes[e]) {
			return fmt.Errorf("end %d waits for ever: %d of %d landed, as it knows", e, w.half[e].done, len(m.writes[e]))
		}
	}
	return nil
}

// event is something that may happen next.
type event struct {
	name string
	do   func(w *world) (bool, error)
}

// events are what may happen; the first ones go on by themselves, the last ones are breaks.
func (m *model) events(w *world) (steps, breaks []event) {
	for e := range 2 {
		for i := range m.rails {
			name := func(s string) string { return fmt.Sprintf("%s %d/%d", s, e, i) }
			steps = append(steps,
				event{name("send"), func(w *world) (bool, error) { return m.send(w, e, i) }},
				event{name("receive"), func(w *world) (bool, error) { return m.receive(w, e, i) }})
			h := &w.half[e]
			if h.landing[i].kind != none {
				steps = append(steps, event{name("land"), func(w *world) (bool, error) { return true, m.land(w, e, i) }})
			}
			if h.live.Has(i) && (w.cut[i][0] || w.cut[i][1]) {
				steps = append(steps, event{name("notice"), func(w *world) (bool, error) { m.giveUp(w, e, i); return true, nil }})
			}
			if w.breaks > 0 && h.live.Has(i) {
				breaks = append(breaks, event{name("give up"), func(w *world) (bool, error) { w.breaks--; m.giveUp(w, e, i); return true, nil }})
				if !w.cut[i][e] {
					breaks = append(breaks, event{name("cut"), func(w *world) (bool, error) { w.breaks--; w.cut[i][e] = true; return true, nil }})
				}
			}
		}
	}
	return steps, breaks
}

// explore looks at every state that follows from w.
func (m *model) explore(w *world) error {
	key := maphash.Comparable(m.seed, *w)
	if _, ok := m.seen[key]; ok {
		return nil
	}
	m.seen[key] = struct{}{}
	steps, breaks := m.events(w)
	moved := false
	for i, ev := range append(steps, breaks...) {
		n := *w
		ok, err := ev.do(&n)
		m.path = append(m.path, ev.name)
		if err != nil {
			return err
		}
		if ok || n != *w { // a verdict changes the receiver
			moved = moved || i < len(steps)
			if err := m.explore(&n); err != nil {
				return err
			}
		}
		m.path = m.path[:len(m.path)-1]
	}
	if !moved {
		return m.check(w)
	}
	return nil
}

// walk takes one way through the states, at random.
func (m *model) walk(rng *rand.Rand) error {
	w := m.first()
	m.path = m.path[:0]
	for idle := 0; idle < 200; {
		steps, breaks := m.events(w)
		evs := steps
		if len(breaks) > 0 && rng.IntN(12) == 0 {
			evs = breaks
		}
		ev := evs[rng.IntN(len(evs))]
		m.path = append(m.path, ev.name)
		before := *w
		if _, err := ev.do(w); err != nil {
			return err
		}
		if idle++; *w != before {
			idle = 0
		}
	}
	return m.check(w)
}

func (m *model) run(t *testing.T) error {
	t.Helper()
	m.seed, m.seen = maphash.MakeSeed(), map[uint64]struct{}{}
	var err error
	if m.walks == 0 {
		err = m.explore(m.first())
		t.Logf("%d states", len(m.seen))
	}
	for i := 0; i < m.walks && err == nil; i++ {
		err = m.walk(rand.New(rand.NewPCG(uint64(i), 1)))
	}
	if err != nil {
		return fmt.Errorf("%w, after %s", err, strings.Join(m.path, ", "))
	}
	return nil
}

// Whatever breaks and whenever: each write is announced once, in order, with all of its bytes; nothing is stored
// after its sender has been told; and while a rail is left on both ends nobody waits for ever.
func TestModel(t *testing.T) {
	for name, m := range map[string]*model{
		"two rails":                 {rails: 2, breaks: 1, writes: [2][]uint8{{2, 1}, {}}},
		"two rails, spread":         {rails: 2, breaks: 1, writes: [2][]uint8{{2, 2}, {}}},
		"two rails, both ways":      {rails: 2, breaks: 1, writes: [2][]uint8{{2}, {1}}},
		"two rails, long":           {rails: 2, breaks: 2, writes: [2][]uint8{{2, 1, 2}, {}}},
		"three rails":               {rails: 3, breaks: 1, writes: [2][]uint8{{2}, {}}},
		"at random, three rails":    {rails: 3, breaks: 4, writes: [2][]uint8{{3, 1, 2}, {2, 2, 1}}, walks: 300},
		"at random, with one break": {rails: 3, breaks: 1, writes: [2][]uint8{{3, 1, 2}, {2, 2, 1}}, walks: 300},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("GCCL_PROVE") == "" && m.walks == 0 && m.breaks > 1 {
				t.Skip("millions of states: GCCL_PROVE=1")
			}
			require.NoError(t, m.run(t))
		})
	}
}

// The model finds what the rules are for.
func TestModelFindsFaults(t *testing.T) {
	for what, c := range map[string]struct {
		rails  int
		writes []uint8
		says   string
	}{
		"stale": {3, []uint8{2}, "is stored after its sender was told"}, // lands the rest of a piece from before the mark
		"stuck": {2, []uint8{2, 2}, "waits for ever"},                   // keeps later pieces while the first is on a lost rail
	} {
		t.Run(what, func(t *testing.T) {
			m := &model{rails: c.rails, breaks: 1, writes: [2][]uint8{c.writes, {}},
				bug: func(_ *world, _ int, s string) bool { return s == what }}
			require.ErrorContains(t, m.run(t), c.says)
		})
	}
}

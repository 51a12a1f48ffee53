package link

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The credit protocol as a model, explored exhaustively: two ranks send to each other over one link each.
// Counters are those of memSender, memReceiver and wireLane, with the geometry's own batch: a receiver holds
// credit back until batch messages are consumed or a message of its own carries it; writes and messages of
// one direction arrive in order, any time later. A rank runs a program: in each of rounds, it sends burst
// messages and then takes burst. Every interleaving of steps of ranks and network is looked at.
type creditModel struct {
	slots, batch, burst, rounds int
	lines                       int // slots of a message; 0 is 1
	// Bugs, to see that the model would find them.
	early  bool // credit is given when a message is seen, before it is consumed
	hoard  bool // credit is held back although a whole ring has been consumed
	unread bool // the sender counts one slot more than there is
	hasty  bool // a message is taken when the first of its slots has arrived
}

// side is one rank's state.
type side struct {
	sent, known  int      // messages sent; of which consumed, as far as known
	taken, given int      // messages consumed; of which credit was given
	seen         int      // messages looked at (early)
	pc           int      // steps of the program done
	slots        [8]int8  // the ring at the peer: message number, 0 if free
	flying       int      // writes under way to the peer, oldest first:
	wire         [12]int8 // the number of the message, 0 for a credit alone
	credit       [12]int8 // and the credit beside it
	arrived      int      // messages that have arrived from the peer
	overwritten  bool
}

type modelState [2]side

func (m *creditModel) done(s *modelState, r int) bool { return s[r].pc == 2*m.burst*m.rounds }

// sends reports whether the next step of a rank's program is a send.
func (m *creditModel) sends(s *modelState, r int) bool { return s[r].pc%(2*m.burst) < m.burst }

// next appends every state that follows s.
func (m *creditModel) next(s modelState, out []modelState) []modelState {
	lines := max(1, m.lines)
	for r := range 2 {
		me := &s[r]
		if me.flying > 0 { // the network delivers the oldest write
			n := s
			to, from := &n[1-r], &n[r]
			if msg := from.wire[0]; msg > 0 {
				slot := (int(msg) - 1) % m.slots
				if from.slots[slot] != 0 {
					from.overwritten = true
				}
				from.slots[slot] = msg
				to.arrived++
			}
			if c := int(from.credit[0]); c > to.known {
				to.known = c
			}
			copy(from.wire[:], from.wire[1:])
			copy(from.credit[:], from.credit[1:])
			from.flying--
			out = append(out, n)
		}
		if m.done(&s, r) || me.flying+lines > len(me.wire) {
			continue
		}
		if m.sends(&s, r) {
			room := m.slots
			if m.unread {
				room++
			}
			if me.sent+lines-me.known <= room {
				n := s
				for range lines {
					n[r].sent++
					n[r].post(int8(n[r].sent), me.taken)
				}
				n[r].given = n[r].taken
				n[r].pc++
				out = append(out, n)
			}
			continue
		}
		if m.early && me.seen < me.arrived { // credit before the bytes are used
			n := s
			n[r].seen++
			n[r].post(0, n[r].seen)
			out = append(out, n)
		}
		want := lines
		if m.hasty {
			want = 1
		}
		if me.taken+want <= me.arrived {
			n := s
			x := &n[r]
			for range lines {
				n[1-r].slots[x.taken%m.slots] = 0
				x.taken++
			}
			x.pc++
			batch := m.batch
			if m.hoard {
				batch = m.slots + 1
			}
			if x.taken-x.given >= batch {
				x.given = x.taken
				x.post(0, x.taken)
			}
			out = append(out, n)
		}
	}
	return out
}

func (x *side) post(msg int8, credit int) {
	x.wire[x.flying], x.credit[x.flying] = msg, int8(credit)
	x.flying++
}

// explore returns how many states there are, and what is wrong with one.
func (m *creditModel) explore() (states int, wrong string) {
	seen := map[modelState]bool{{}: true}
	todo := []modelState{{}}
	var buf []modelState
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s[0].overwritten || s[1].overwritten {
			return len(seen), "a slot was overwritten"
		}
		buf = m.next(s, buf[:0])
		if len(buf) == 0 && !(m.done(&s, 0) && m.done(&s, 1)) {
			return len(seen), fmt.Sprintf("deadlock: sent %d and %d, taken %d and %d", s[0].sent, s[1].sent, s[0].taken, s[1].taken)
		}
		for _, n := range slices.Clone(buf) {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), ""
}

// No slot is overwritten and nobody waits for ever, as long as neither side needs more slots at once than
// Usable says; one more, and there is a deadlock. So the bound is right, and it is tight.
func TestCreditProtocolModel(t *testing.T) {
	for _, slots := range []int{2, 4} {
		g := Geometry{Lanes: 1, Slots: slots, SlotBytes: 64}
		for _, burst := range slices.Compact([]int{1, g.Usable()/2 + 1, g.Usable()}) {
			m := creditModel{slots: slots, batch: g.batch(), burst: burst, rounds: max(1, 6/burst)}
			states, wrong := m.explore()
			require.Empty(t, wrong, "%+v", m)
			t.Logf("%d slots, credit for %d at a time, bursts of %d: %d states, no overwrite, no deadlock", slots, m.batch, burst, states)
		}
		m := creditModel{slots: slots, batch: g.batch(), burst: slots + 1, rounds: 1}
		_, wrong := m.explore()
		require.Contains(t, wrong, "deadlock", "%+v", m)
		if slots > 2 { // the bugs show where there is least room
			continue
		}
		for wrong, m := range map[string]creditModel{
			"overwritten": {slots: slots, batch: g.batch(), burst: slots, rounds: 2, early: true},
			"a slot was ": {slots: slots, batch: g.batch(), burst: slots + 1, rounds: 1, unread: true},
			"deadlock":    {slots: slots, batch: g.batch(), burst: slots, rounds: 2, hoard: true},
		} {
			_, found := m.explore()
			require.Contains(t, found, wrong, "a seeded bug: %+v", m)
		}
	}
}

// Nor is a header overwritten, and nobody waits for ever, where messages take several (spreadMost).
func TestCreditProtocolModelOfSpreadMessages(t *testing.T) {
	for _, lines := range []int{2, spreadLines} {
		const headers, lag = 8, 2
		usable := (headers - lag + 1) / lines
		for _, burst := range slices.Compact([]int{1, usable}) {
			m := creditModel{slots: headers, batch: lag, lines: lines, burst: burst, rounds: max(1, 6/(burst*lines))}
			states, wrong := m.explore()
			require.Empty(t, wrong, "%+v", m)
			t.Logf("%d headers, credit for %d at a time, bursts of %d messages of %d: %d states, no overwrite, no deadlock", headers, lag, burst, lines, states)
		}
		m := creditModel{slots: headers, batch: lag, lines: lines, burst: headers/lines + 1, rounds: 1}
		_, wrong := m.explore()
		require.Contains(t, wrong, "deadlock", "%+v", m)
		m = creditModel{slots: headers, batch: lag, lines: lines, burst: usable, rounds: 3, hasty: true}
		_, wrong = m.explore()
		require.NotEmpty(t, wrong, "a seeded bug: %+v", m)
	}
}

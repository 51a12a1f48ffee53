package link

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Grants as a model, explored exhaustively: a sender, a receiver, and a network that delivers the writes of each direction in order, any
// time later; what has arrived is polled later still. The sender sends transfers of modelUnits units, by slots, one unit a message, or to
// where it was granted, as many units as it likes. The receiver grants the transfer that it begins to receive, or ones to come, or none, and may
// fail at any time: it then breaks the connection if a grant holds, and gives its memory back. The sender frees its window at some
// transfer, after which it uses no grants and late ones mean nothing.
type grantModel struct {
	alike  bool // transfers have one fingerprint, as those of a call's windows do: none are granted ahead
	freeAt int8 // the sender's transfers from here on are not between windows
	// Bugs, to see that the model would find them.
	keep, anyFirst, reuse, forever, refuse, atStart bool
}

const (
	modelTransfers = 3
	modelUnits     = 2
	modelLines     = 2 // of grants
	modelEntries   = 3
)

// modelGrant is a line of grants; number 0 is none.
type modelGrant struct{ number, first, fp, place int8 }

// modelMessage is units of a transfer, from at on.
type modelMessage struct {
	transfer, at, n, looked int8
	placed                  bool
	place, offset           int8
}

// modelBack is a write of the receiver's: credit, and a grant or none.
type modelBack struct {
	credit int8
	grant  modelGrant
}

type grantState struct {
	// The sender's.
	sending, done, first, sent, known, looked int8
	granted                                   [modelLines]modelGrant
	lines                                     [modelLines]modelGrant // in its memory
	cq                                        [8]modelBack           // that it has not polled
	polls                                     int8
	// The network's.
	out         [modelEntries]modelMessage
	back        [8]modelBack
	outs, backs int8
	broken      bool
	// The receiver's.
	receiving, got, taken, grants, seen int8
	inbox                               [modelEntries]modelMessage
	inboxes                             int8
	holds                               [modelLines][2]int8 // fingerprint and units left; 0 left: none
	told, failed                        bool
	there                               [modelTransfers]uint8 // units in its memory
	wrong                               string
}

func (m *grantModel) fp(transfer int8) int8 {
	if m.alike {
		return 1
	}
	return 1 + transfer
}

func (s *grantState) held(fp int8) *[2]int8 {
	for i := range s.holds {
		if s.holds[i][1] > 0 && s.holds[i][0] == fp {
			return &s.holds[i]
		}
	}
	return nil
}

func (s *grantState) exposed() bool {
	return slices.ContainsFunc(s.holds[:], func(h [2]int8) bool { return h[1] > 0 })
}

func (s *grantState) post(b modelBack) {
	s.back[s.backs] = b
	s.backs++
}

// grant is wireReceiver.give of a transfer, if it may be granted.
func (m *grantModel) grant(s grantState, transfer, first int8) (grantState, bool) {
	free := slices.IndexFunc(s.holds[:], func(h [2]int8) bool { return h[1] <= 0 })
	if transfer >= modelTransfers || s.held(m.fp(transfer)) != nil || free < 0 || s.grants-s.seen >= modelLines && !m.reuse || int(s.backs) == len(s.back) {
		return s, false
	}
	s.holds[free] = [2]int8{m.fp(transfer), modelUnits}
	s.grants++
	s.post(modelBack{s.taken, modelGrant{s.grants, first, m.fp(transfer), transfer}})
	return s, true
}

// next appends every state that follows s.
func (m *grantModel) next(s grantState, out []grantState) []grantState {
	if s.broken {
		return out
	}
	if s.outs > 0 { // the network delivers to the receiver
		n := s
		x := n.out[0]
		copy(n.out[:], n.out[1:])
		n.outs--
		n.out[n.outs] = modelMessage{}
		if x.placed {
			switch {
			case n.failed || x.place < n.receiving:
				n.wrong = "a write into memory that was taken back"
			case x.place != x.transfer || x.offset != x.at:
				n.wrong = "a write to the wrong place"
			}
			n.there[x.place] |= (1<<x.n - 1) << x.offset
		}
		n.inbox[n.inboxes] = x
		n.inboxes++
		out = append(out, n)
	}
	if s.backs > 0 && int(s.polls) < len(s.cq) { // and to the sender, whose memory shows it at once
		n := s
		b := n.back[0]
		copy(n.back[:], n.back[1:])
		n.backs--
		n.back[n.backs] = modelBack{}
		if b.grant.number > 0 {
			n.lines[b.grant.number%modelLines] = b.grant
		}
		n.cq[n.polls] = b
		n.polls++
		out = append(out, n)
	}
	if s.polls > 0 {
		out = append(out, m.poll(s))
	}
	return m.receive(s, m.send(s, out))
}

// poll has the sender take its oldest completion.
func (m *grantModel) poll(s grantState) grantState {
	b := s.cq[0]
	copy(s.cq[:], s.cq[1:])
	s.polls--
	s.cq[s.polls] = modelBack{}
	s.known = b.credit
	if b.grant.number == 0 {
		return s
	}
	g := s.lines[(s.looked+1)%modelLines]
	if s.looked++; g.number != s.looked {
		s.wrong = "a grant was written over before it was looked at"
	}
	if s.sending >= m.freeAt { // of a window that is freed
		if m.refuse {
			s.wrong = "the connection was given up"
		}
		g = modelGrant{}
	}
	s.granted[s.looked%modelLines] = g
	return s
}

func (m *grantModel) send(s grantState, out []grantState) []grantState {
	if s.sending == modelTransfers || s.sent-s.known >= modelEntries {
		return out
	}
	x := modelMessage{transfer: s.sending, at: s.done, n: 1, looked: s.looked}
	out = append(out, m.sent(s, x))
	if s.sending >= m.freeAt {
		return out
	}
	for _, g := range s.granted {
		if g.number > 0 && g.fp == m.fp(s.sending) && (g.first < 0 || g.first == s.first || m.anyFirst) {
			x.placed, x.place, x.offset = true, g.place, s.done
			if m.atStart {
				x.offset = 0
			}
			for x.n = 1; x.n <= modelUnits-s.done; x.n++ {
				out = append(out, m.sent(s, x))
			}
			break
		}
	}
	return out
}

func (m *grantModel) sent(s grantState, x modelMessage) grantState {
	s.out[s.outs] = x
	s.outs++
	s.sent++
	if s.done += x.n; s.done == modelUnits {
		s.sending, s.done, s.first = s.sending+1, 0, s.sent
		if s.sending == m.freeAt {
			s.granted = [modelLines]modelGrant{}
		}
	}
	return s
}

func (m *grantModel) receive(s grantState, out []grantState) []grantState {
	if s.failed {
		return out
	}
	failed := s
	failed.failed = true
	failed.broken = s.exposed() && !m.keep
	out = append(out, failed)
	if s.receiving == modelTransfers {
		return out
	}
	if s.got == 0 && !s.told { // Expect
		have := int8(0)
		for _, x := range s.inbox[:s.inboxes] {
			have += x.n
		}
		if n, ok := m.grant(s, s.receiving, s.taken); ok && have < modelUnits {
			n.told = true
			out = append(out, n)
		}
	}
	for t := s.receiving + 1; t < modelTransfers && !m.alike; t++ { // ExpectAhead
		if n, ok := m.grant(s, t, -1); ok {
			out = append(out, n)
		}
	}
	if s.inboxes > 0 && int(s.backs) < len(s.back) {
		out = append(out, m.take(s))
	}
	return out
}

// take has the receiver take its oldest message.
func (m *grantModel) take(s grantState) grantState {
	x := s.inbox[0]
	copy(s.inbox[:], s.inbox[1:])
	s.inboxes--
	s.inbox[s.inboxes] = modelMessage{}
	h := s.held(m.fp(x.transfer))
	units := uint8((1<<x.n - 1) << s.got)
	switch {
	case x.transfer != s.receiving || x.at != s.got:
		s.wrong = "a message is missing"
	case x.placed && (h == nil || x.n > h[1]):
		s.wrong = "a message was refused that was placed as granted"
	case x.placed && s.there[s.receiving]&units != units:
		s.wrong = "bytes are missing"
	}
	s.there[s.receiving] |= units
	if h != nil && (x.placed || !m.forever) {
		if h[1] -= x.n; h[1] <= 0 {
			*h = [2]int8{}
		}
	}
	s.seen = x.looked
	s.taken++
	s.post(modelBack{credit: s.taken})
	s.told = true
	if s.got += x.n; s.got == modelUnits {
		s.receiving, s.got, s.told = s.receiving+1, 0, false
	}
	return s
}

// explore returns how many states there are, how many of them have placed messages under way, and what is wrong with one.
func (m *grantModel) explore() (states, placed int, wrong string) {
	begin := grantState{}
	seen := map[grantState]bool{begin: true}
	todo := []grantState{begin}
	var buf []grantState
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.outs > 0 && s.out[0].placed {
			placed++
		}
		over := s.sending == modelTransfers && s.receiving == modelTransfers
		buf = m.next(s, buf[:0])
		switch {
		case s.wrong != "":
			return len(seen), placed, s.wrong
		case over && !s.failed && s.exposed():
			return len(seen), placed, "a grant outlives its transfer"
		case len(buf) == 0 && !over && !s.failed:
			return len(seen), placed, fmt.Sprintf("nobody can go on: %+v", s)
		}
		for _, n := range buf {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), placed, ""
}

// Whatever is granted, used or not, late or too late, and whenever the receiver fails: nothing is written into memory that its owner has
// back, or to a wrong place, no message is lost or refused, no grant outlives its transfer, and somebody can always go on.
func TestGrantModel(t *testing.T) {
	for _, m := range []grantModel{{freeAt: modelTransfers}, {alike: true, freeAt: modelTransfers}, {freeAt: 1}, {alike: true, freeAt: 2}} {
		states, placed, wrong := m.explore()
		require.Empty(t, wrong, "%+v", m)
		require.NotZero(t, placed)
		t.Logf("%+v: %d states, %d with a placed message next", m, states, placed)
	}
	for _, tt := range []struct {
		wrong string
		grantModel
	}{
		{"taken back", grantModel{freeAt: modelTransfers, keep: true}},
		{"taken back", grantModel{alike: true, freeAt: modelTransfers, anyFirst: true}},
		{"written over", grantModel{freeAt: modelTransfers, reuse: true}},
		{"outlives", grantModel{freeAt: modelTransfers, forever: true}},
		{"given up", grantModel{freeAt: 1, refuse: true}},
		{"wrong place", grantModel{freeAt: modelTransfers, atStart: true}},
	} {
		_, _, found := tt.explore()
		require.Contains(t, found, tt.wrong, "a seeded bug: %+v", tt.grantModel)
	}
}

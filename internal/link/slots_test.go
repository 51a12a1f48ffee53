package link

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Messages that share slots arrive as they were sent, among longer ones and ones without slots, and past the wrap of the
// numbers: no slot is used again before all that lay in it has been consumed. There is room for as many as proofs
// count on, whatever went before.
func TestMessagesShareSlots(t *testing.T) {
	for _, begin := range []uint32{0, math.MaxUint32 - 200} {
		g := Geometry{Lanes: 1, Slots: 4, SlotBytes: 2 * shareMost}
		a, b := pair(t, g, false)
		s, r := a.Peer(1).Sender(0).(*memSender), b.Peer(0).Receiver(0).(*memReceiver)
		from(s, r, begin)
		call := &Call{FP: 7}
		random := rand.New(rand.NewPCG(1, 2))
		var sent []string
		got, most := 0, 0
		for step := range 20_000 {
			if random.IntN(100) == 0 { // all is taken now and then
				for got < len(sent) {
					got = takeText(t, r, call, sent, got)
				}
			}
			lengths := []int{InlineBytes, SpreadBytes, 600, shareMost / slotShare, shareMost, 2 * shareMost, 2 * shareMost, 2 * shareMost}
			n := lengths[random.IntN(len(lengths))]
			switch step / 1000 % 4 {
			case 0:
				n = 600
			case 1:
				n = 2 * shareMost // after what shared slots, all of which will be taken
			}
			if n = random.IntN(n) + 1; random.IntN(20) > 0 {
				if buf, ok := s.Reserve(n); ok {
					text := fmt.Sprintf("%-*d", n, step)[:n]
					s.Commit(copy(buf, text), call)
					sent = append(sent, text)
					most = max(most, len(sent)-got)
					continue
				}
				require.GreaterOrEqual(t, len(sent)-got, g.Usable(), "no room")
			}
			for range random.IntN(2 * slotShare) {
				got = takeText(t, r, call, sent, got)
			}
		}
		require.GreaterOrEqual(t, most, g.Slots*slotShare)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// takeText takes a message, if one is there, which must be sent[got].
func takeText(t *testing.T, r Receiver, call *Call, sent []string, got int) int {
	m, err := r.Peek(call)
	require.NoError(t, err)
	if m == nil {
		require.Len(t, sent, got)
		return got
	}
	require.Equal(t, sent[got], string(m.Data))
	r.Advance(m.Len)
	return got + 1
}

// A slot that messages have shared is free when they have been consumed, whatever has been sent since.
func TestASharedSlotIsFreeWhenItIsConsumed(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: 2 * shareMost}
	for _, small := range []bool{false, true} { // something without a slot follows
		a, b := pair(t, g, false)
		s, r := a.Peer(1).Sender(0).(*memSender), b.Peer(0).Receiver(0)
		call := &Call{FP: 7}
		send := func(n int) bool {
			_, ok := s.Reserve(n)
			if ok {
				s.Commit(n, call)
			}
			return ok
		}
		take := func() {
			m, err := r.Peek(call)
			require.NoError(t, err)
			r.Advance(m.Len)
		}
		count := 0
		for ; send(600); count++ {
		}
		// The first few, until it runs ahead, have slots of their own.
		require.InDelta(t, g.Slots*slotShare, count, runsAhead*slotShare)
		require.LessOrEqual(t, count, g.Slots*slotShare)
		for range count {
			take()
		}
		for range 2 * slotShare { // one slot is open, and half full
			require.True(t, send(600))
		}
		for range 2 * slotShare {
			take()
		}
		s.refresh()
		if small {
			require.True(t, s.Put([]byte("text"), call))
		}
		for range g.Usable() - 1 {
			require.True(t, send(2*shareMost))
		}
		if small {
			take()
			require.True(t, b.Peer(0).Sender(0).Put([]byte("credit"), call))
			s.refresh()
		}
		require.True(t, send(2*shareMost))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// A sender that waits for answers takes another slot for each message.
func TestWhoWaitsForAnswersSharesNoSlot(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 4, SlotBytes: 4096}, false)
	call := &Call{FP: 7}
	send := func(m *Mesh, peer int) *byte {
		buf, ok := m.Peer(peer).Sender(0).Reserve(600)
		require.True(t, ok)
		m.Peer(peer).Sender(0).Commit(600, call)
		return &buf[0]
	}
	places := map[*byte]bool{}
	for range 40 {
		places[send(a, 1)] = true
		send(b, 0)
		for _, r := range []Receiver{b.Peer(0).Receiver(0), a.Peer(1).Receiver(0)} {
			m, err := r.Peek(call)
			require.NoError(t, err)
			r.Advance(m.Len)
		}
	}
	require.Len(t, places, 4)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// What is shared by several peers lies in the pool in the same way, and stays there until both have taken it.
func TestMessagesShareSlotsOfThePool(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: 4096, PoolLanes: 1, PoolBytes: shortSlot}
	m := connected(t, 3, g, false)
	share := m[0].Share(0, []*Peer{m[0].Peer(1), m[0].Peer(2)})
	call := &Call{FP: 7}
	taken := [2]int{}
	sent, most := []string{}, 0
	for round := range 20 {
		for {
			b, ok := share.Reserve(600)
			if !ok {
				break
			}
			sent = append(sent, fmt.Sprintf("%600d", len(sent)))
			copy(b, sent[len(sent)-1])
			share.Commit(call)
		}
		most = max(most, len(sent)-taken[0], len(sent)-taken[1])
		for i := range taken { // one of them all, the other some
			left := len(sent) - taken[i]
			if round%2 == i {
				left /= 3
			}
			for range left {
				taken[i] = takeText(t, m[1+i].Peer(0).Receiver(0), call, sent, taken[i])
			}
		}
	}
	require.Greater(t, most, g.Slots)
	require.LessOrEqual(t, most, g.Slots*slotShare)
	for _, m := range m {
		require.NoError(t, m.Close())
	}
}

package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A sender that waits for answers fetches its next line when one has come, once; one that runs ahead fetches further.
func TestLinesAreFetchedWhenAnAnswerMayFollow(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 4, SlotBytes: 64}, false)
	call := Call{FP: 7}
	pass := func(s Sender, r Receiver) {
		require.True(t, s.Put(make([]byte, 8), &call))
		require.Equal(t, Taken, r.Take(make([]byte, 8), &call))
	}
	s, back := a.Peer(1).Sender(0).(*memSender), a.Peer(1).Receiver(0)
	for range 300 { // more than a ring
		pass(s, b.Peer(0).Receiver(0))
		require.LessOrEqual(t, int32(s.fetched-s.next), int32(0), "the peer has not answered")
		pass(b.Peer(0).Sender(0), back)
		require.Equal(t, s.next+1, s.fetched)
	}
	for range runsAhead {
		require.True(t, s.Put(make([]byte, 8), &call))
	}
	require.Greater(t, s.fetched, s.next)
	for s.Put(make([]byte, 8), &call) {
		require.LessOrEqual(t, s.fetched-s.consumed, s.mask+1, "a line that the peer has not read")
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

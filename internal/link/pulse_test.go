package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A peer is gone when its pulse has stood still for the limit while it was listened to all the time.
func TestListen(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}
	const limit = 5 * time.Second
	now := time.Unix(1000, 0)
	a, b := pair(t, g, false)
	defer a.Close()
	defer b.Close()
	p := a.Peer(1)
	listen := func(d time.Duration, beats bool) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(50 * time.Millisecond)
			if beats {
				b.Beat()
			}
			p.Listen(now, limit)
		}
	}
	listen(time.Minute, true)
	listen(limit-time.Second, false)
	require.Nil(t, p.Gone())
	listen(time.Second, true)
	listen(limit-time.Second, false)
	require.Nil(t, p.Gone(), "a beat begins the count anew")
	now = now.Add(time.Hour) // this rank was not waiting, or was stopped itself
	listen(limit, false)
	require.Nil(t, p.Gone(), "who has not looked cannot blame")
	listen(100*time.Millisecond, false)
	require.NotNil(t, p.Gone())
	require.Equal(t, &Notice{Cause: CauseLost, From: 0, Culprit: 1, Text: "rank 1 has been stopped or cut off for 5s"}, p.Gone())
	require.Nil(t, b.Peer(0).Gone())
}

// Over posted writes a beat is a write that the peer's user does not notice, any message is a sign of
// life as well, and beats that nobody polls the completions of end before they fill the send queue.
func TestListenOverWrites(t *testing.T) {
	const limit = 5 * time.Second
	now := time.Unix(1000, 0)
	a, b := pair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, true)
	defer a.Close()
	defer b.Close()
	p := a.Peer(1)
	progress := func(m *Mesh) {
		_, err := m.Progress()
		require.NoError(t, err)
	}
	listen := func(d time.Duration, each func()) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(50 * time.Millisecond)
			each()
			progress(a)
			p.Listen(now, limit)
		}
	}
	listen(time.Minute, func() { b.Beat(); progress(b) })
	listen(limit-time.Second, func() {})
	b.Beat()
	listen(limit-time.Second, func() {})
	require.Nil(t, p.Gone(), "a beat begins the count anew")
	s := b.Peer(0).Sender(0)
	_, ok := s.Reserve(1)
	require.True(t, ok)
	s.Commit(1, &Call{FP: 1})
	listen(limit-time.Second, func() {})
	require.Nil(t, p.Gone(), "so does a message")
	progress(b)
	posted := b.Peer(0).wire.posted
	listen(time.Minute, b.Beat)
	require.NotNil(t, p.Gone(), "nobody polls there")
	require.Equal(t, uint64(maxBeats), b.Peer(0).wire.posted-posted)
	require.Contains(t, p.Gone().Text, "rank 1 has been stopped or cut off for ")
	require.True(t, a.Drained())

	n := &Notice{Cause: CauseGaveUp, From: 1, Culprit: 1, Text: "enough"}
	b.Fail(n)
	progress(a)
	require.Equal(t, n, a.Failed(), "the pulse and the notice share a board")
}

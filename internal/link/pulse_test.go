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

	c, d := pair(t, g, true)
	defer c.Close()
	defer d.Close()
	p = c.Peer(1)
	listen(time.Minute, false)
	require.Nil(t, p.Gone(), "no pulse can be seen over posted writes")
}

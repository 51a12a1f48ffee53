//go:build linux

package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// fill polls one end, which has more to send than sockets hold, until its socket takes no more.
func fill(t *testing.T, x *end) {
	t.Helper()
	for !x.ep.lanes[0].out.blocked {
		_, err := x.cq.Poll(x.cs[:])
		require.NoError(t, err)
	}
}

// A queue does not go to sleep while an endpoint could send more, whatever sockets of others are full.
func TestBusyBesideAFullSocket(t *testing.T) {
	const size = 3 << 20
	a, b := newEnds(t, Options{}, size)
	c := newEnd(t, Options{}, size)
	ep := a.endpoint(t)
	join(t, ep, c.ep)
	q := a.cq.(*queue)
	src := touched(size)
	for q.blocked.Load() == 0 {
		_, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), HasImm: true}})
		require.NoError(t, err)
	}
	busy := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.busyLocked()
	}
	for busy() { // with what has been sent
		_, err := q.Poll(a.cs[:])
		require.NoError(t, err)
	}
	ep.tx.wants.Store(true) // as after pumpBudget
	require.True(t, busy())
}

// A queue that is slept on while a socket is full has its out set in its in set. An event of that is about no
// socket, and Poll may see it, whether or not anybody sleeps any more.
func TestPollAfterSleepBesideAFullSocket(t *testing.T) {
	const size = 3 << 20
	a, b := newEnds(t, Options{}, size)
	q := a.cq.(*queue)
	for range directMax { // more sockets than are all read directly
		c := newEnd(t, Options{}, 4096)
		join(t, a.endpoint(t), c.ep)
	}
	src := touched(size)
	sent := 0
	for q.blocked.Load() == 0 {
		n, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), HasImm: true}})
		require.NoError(t, err)
		sent += n
	}
	for busy := true; busy; { // with what has been sent
		_, err := q.Poll(a.cs[:])
		require.NoError(t, err)
		q.mu.Lock()
		busy = q.busyLocked()
		q.mu.Unlock()
	}
	require.NoError(t, q.Wait(time.Millisecond))
	for range 2 * spinAfter { // nobody sleeps any more
		_, err := q.Poll(a.cs[:])
		require.NoError(t, err)
	}
	require.False(t, q.sleep.on)
	require.False(t, q.sleep.nested)
	for left := sent; left > 0; { // the socket takes more
		n, err := b.cq.Poll(b.cs[:])
		require.NoError(t, err)
		left -= n
		_, err = q.Poll(a.cs[:])
		require.NoError(t, err)
	}
}

// Nor does it while one socket of an endpoint is full and another was, and is not any more.
func TestBusyWithASocketThatTakesMore(t *testing.T) {
	const size = 3 << 20
	a, b := newEnds(t, Options{Sockets: 2}, size)
	q := a.cq.(*queue)
	src := touched(size)
	for q.blocked.Load() < 2 {
		_, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), HasImm: true}})
		require.NoError(t, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busyLocked() {
		q.sendLocked()
	}
	l := a.ep.lanes[1]
	drain(b.ep.lanes[1].fd)
	for l.out.blocked { // as Arm does
		q.unblockLocked()
	}
	require.True(t, q.busyLocked())
	q.sendLocked()
}

// When a socket that was full ends, nobody is kept awake by it.
func TestSleepAfterAFullSocketEnds(t *testing.T) {
	const size = 3 << 20
	a, b, lost, _ := newWatchedEnds(t, Options{}, size)
	q := a.cq.(*queue)
	src := touched(size)
	for q.blocked.Load() == 0 {
		_, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), HasImm: true}})
		require.NoError(t, err)
	}
	fill(t, a)
	require.NoError(t, q.Wait(time.Millisecond))
	resetLane(t, b.ep.lanes[0])
	for limit := time.Now().Add(10 * time.Second); len(lost) == 0 || q.harvests.Load() > 0; {
		require.True(t, time.Now().Before(limit))
		_, err := q.Poll(a.cs[:])
		require.NoError(t, err)
	}
	early := 0
	for range 10 {
		_, err := q.Poll(a.cs[:])
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, q.Wait(20*time.Millisecond))
		if time.Since(begin) < 10*time.Millisecond {
			early++
		}
	}
	require.Less(t, early, 5)
}

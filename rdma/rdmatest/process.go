package rdmatest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var processTests = []struct {
	name string
	run  func(t *testing.T, open Opener)
}{
	{"Stream", testProcessStream},
	{"WrongKey", testProcessWrongKey},
	{"Bells", testProcessBells},
	{"PeerCloses", testProcessPeerCloses},
	{"PeerExits", testProcessPeerExits},
	{"PeerLosesUs", testProcessPeerLosesUs},
	{"KilledIdle", testKilledIdle},
	{"KilledWhileItWrites", testKilledWhileItWrites},
	{"KilledWhileWeWrite", testKilledWhileWeWrite},
	{"KilledWhileMapped", testKilledWhileMapped},
	{"KilledWhileWeSleep", testKilledWhileWeSleep},
	{"KilledBeforeConnect", testKilledBeforeConnect},
	{"Stopped", testStopped},
}

// RunProcesses runs the tests that need a second process. The provider's TestMain calls Main with
// the same opener.
func RunProcesses(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{}) // as warmUp
	c.do(t, order{Do: "nothing"})
	assert.Empty(t, s.lost.all())
	require.NoError(t, s.dev.Close())
	c.kill()
	for _, tt := range processTests {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			tt.run(t, open)
		})
	}
}

// openSide opens a device with a side in this process, closed with the test.
func openSide(t *testing.T, open Opener, opts rdma.EndpointOptions) *side {
	t.Helper()
	dev, err := open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, dev.Close()) })
	opts.RecvDepth = childDepth
	s, err := newSide(dev, opts)
	require.NoError(t, err)
	return s
}

// withChild returns a side that is connected to one in another process.
func withChild(t *testing.T, open Opener, opts rdma.EndpointOptions) (*side, *child) {
	t.Helper()
	s := openSide(t, open, opts)
	c := startChild(t)
	require.NoError(t, json.NewEncoder(c.in).Encode(hello{s.ep.Address(), s.mem.Remote()}))
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	require.NoError(t, s.ep.Connect(ctx, c.Address))
	return s, c
}

// to describes a signaled write of the side's first n bytes into the peer process's region.
func (s *side) to(c *child, n int) rdma.Write {
	return rdma.Write{Local: s.mem.Bytes()[:n], Region: s.mem, Remote: c.Remote, Signaled: true}
}

func testProcessStream(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	for i, o := range []order{
		{Window: 1, Size: 64, Total: 300},
		{Window: 16, Size: 8, Total: 2000},
		{Window: 32, Size: 4000, Total: 2000, Quiet: true},
		{Window: 4, Size: 32 << 10, Total: 400},
	} {
		o.Do, o.Seed, o.Total = "stream", uint64(i)<<20, int(messages(uint32(o.Total)))
		c.tell(t, o)
		st := o.stream()
		st.seed, st.peer = st.peer, st.seed
		require.NoError(t, st.run(s, c.Remote), "%+v", o)
		c.answer(t)
	}
}

func testProcessWrongKey(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "nothing"}) // it is connected: else the refusal may reach it first
	c.tell(t, order{Do: "lost"})  // it polls
	w := s.to(c, 100)
	w.Remote.Key++
	expectRefusal(t, s, w, nil)
	c.answer(t)
}

func testProcessBells(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	if _, ok := s.ep.(rdma.LoadStore); !ok {
		t.Skip("no load/store access to the peer")
	}
	c.tell(t, order{Do: "bells", Rounds: rounds() / 2})
	require.NoError(t, s.playBells(t.Context(), c.Remote, rounds()/2, true))
	c.answer(t)
}

// expectLoss checks what has to follow the end of the peer, however it came.
func expectLoss(t *testing.T, s *side) {
	t.Helper()
	s.lost.await(t)
	expectBroken(t, s)
	fill(s.mem.Bytes(), 1) // memory of one's own stays
	require.NoError(t, s.ep.Close())
	require.NoError(t, s.dev.Close())
	assert.Len(t, s.lost.all(), 1)
}

func testProcessPeerCloses(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "close"})
	expectLoss(t, s)
}

func testProcessPeerExits(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "nothing"})
	c.tell(t, order{Do: "exit"})
	expectLoss(t, s)
}

func testProcessPeerLosesUs(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "nothing"}) // it is connected
	c.tell(t, order{Do: "lost"})
	require.NoError(t, s.dev.Close())
	c.answer(t)
	assert.Empty(t, s.lost.all())
}

func testKilledIdle(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "nothing"})
	c.kill()
	expectLoss(t, s)
}

func testKilledWhileItWrites(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.tell(t, order{Do: "flood"})
	// The flood needs polls at this end where data moves in its user's time.
	answered := make(chan error, 1)
	go func() {
		var r report
		answered <- c.out.Decode(&r)
	}()
	require.NoError(t, s.pollUntil("the flood", func() bool { return len(answered) > 0 }))
	require.NoError(t, <-answered)
	c.kill()
	// And what the peer sent before its end must be taken before the end can be seen.
	require.NoError(t, s.pollUntil("OnLost is called", func() bool { return len(s.lost.all()) > 0 }))
	expectLoss(t, s)
}

func testKilledWhileWeWrite(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "nothing"})
	taken := 0
	for deadline := time.Now().Add(Limit); ; {
		require.True(t, time.Now().Before(deadline), "the loss is not noticed")
		w := s.to(c, 64<<10)
		w.ID = uint64(taken)
		n, err := s.ep.Post([]rdma.Write{w})
		if taken += n; taken == 50 && n == 1 {
			c.kill()
		}
		if err != nil {
			break
		}
		_, err = s.poll()
		require.NoError(t, err)
		if k := len(s.wrote); k > 0 && s.wrote[k-1].Err != nil {
			break
		}
	}
	failed := false
	for i, d := range s.takeWrote(t, taken) {
		require.Equal(t, uint64(i), d.ID)
		if d.Err == nil {
			require.False(t, failed, "write %d went through after one that failed", i)
			continue
		}
		failed = true
		require.ErrorIs(t, d.Err, rdma.ErrPeerLost)
	}
	expectLoss(t, s)
}

// A mapping outlives the process that owns the memory.
func testKilledWhileMapped(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	ep, ok := s.ep.(rdma.LoadStore)
	if !ok {
		t.Skip("no load/store access to the peer")
	}
	m, err := ep.Map(t.Context(), c.Remote)
	require.NoError(t, err)
	require.Equal(t, pattern(memSize, 11), m)
	c.kill()
	s.lost.await(t)
	require.Equal(t, pattern(memSize, 11), m)
	fill(m, 12)
	ep.Signal() // to nobody
	expectLoss(t, s)
}

// A rank that sleeps on its bell, which its OnLost rings, hears of the loss.
func testKilledWhileWeSleep(t *testing.T, open Opener) {
	bells := make(chan rdma.Bell, 1) // filled long before the loss
	var lost lostLog
	s, c := withChild(t, open, rdma.EndpointOptions{OnLost: func(err error) {
		lost.add(err)
		(<-bells).Ring()
	}})
	bell := bellOf(t, s.dev)
	bells <- bell
	c.do(t, order{Do: "nothing"})
	bell.Arm()
	c.kill()
	require.False(t, sleep(bell), "OnLost did not ring")
	lost.await(t)
}

func testKilledBeforeConnect(t *testing.T, open Opener) {
	s := openSide(t, open, rdma.EndpointOptions{})
	c := startChild(t)
	c.kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.ep.Connect(ctx, c.Address); err == nil {
		expectBroken(t, s)
	}
}

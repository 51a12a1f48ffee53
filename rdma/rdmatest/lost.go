package rdmatest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var lostTests = []test{
	{"EndpointClosedByPeer", testPeerClosesEndpoint},
	{"DeviceClosedByPeer", testPeerClosesDevice},
	{"ReceivedBeforeLossStays", testReceivedBeforeLoss},
	{"NotAfterLocalClose", testNotAfterLocalClose},
	{"NilOnLost", testNilOnLost},
	{"PostedWritesCompleteOnce", testPostedWritesComplete},
	{"CloseWhilePosting", testCloseWhilePosting},
	{"CloseDeviceWhilePosting", testCloseDeviceWhilePosting},
	{"BothCloseAtOnce", testBothClose},
	{"OthersGoOn", testOthersGoOnAfterLoss},
}

func testPeerClosesEndpoint(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	a.send(t, b, []byte("x"), 1)
	require.NoError(t, b.ep.Close())
	a.lost.await(t) // nothing is posted
	expectBroken(t, a)
	require.NoError(t, a.ep.Close())
	assert.Len(t, a.lost.all(), 1)
	assert.Empty(t, b.lost.all(), "OnLost after a local Close")
}

func testPeerClosesDevice(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	c, d := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	require.NoError(t, devs[1].Close())
	a.lost.await(t)
	c.lost.await(t)
	expectBroken(t, a)
	expectBroken(t, c)
	assert.Empty(t, b.lost.all())
	assert.Empty(t, d.lost.all())
}

// What was written before the peer closed orderly, and was completed there, arrives.
func testReceivedBeforeLoss(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	fill(a.mem.Bytes()[:1000], 1)
	w := a.write(b, 0, 1000)
	w.Imm, w.HasImm = 5, true
	require.NoError(t, a.post(w))
	require.NoError(t, a.takeWrote(t, 1)[0].Err)
	require.NoError(t, a.dev.Close())
	b.lost.await(t)
	assert.Equal(t, uint32(5), b.takeReceived(t, 1)[0].Imm)
	assert.Equal(t, pattern(1000, 1), b.mem.Bytes()[:1000])
}

func testNotAfterLocalClose(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	c, d := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	require.NoError(t, a.ep.Close())
	require.NoError(t, b.ep.Close())
	// By the time that a later loss on the same devices is known, this one would be.
	require.NoError(t, d.ep.Close())
	c.lost.await(t)
	assert.Empty(t, a.lost.all(), "OnLost after a local Close")
}

func testNilOnLost(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := apart(t, devs[0], devs[1], rdma.EndpointOptions{})
	silent, err := devs[0].NewEndpoint(a.cq, rdma.EndpointOptions{})
	require.NoError(t, err)
	a.ep = silent
	require.NoError(t, connect(t.Context(), a.ep, b.ep))
	require.NoError(t, b.ep.Close())
	expectBroken(t, a)
}

// When the peer goes, every signaled write that was taken completes once, in order: first those
// that went through, then those that failed.
func testPostedWritesComplete(t *testing.T, f Factory) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("device=%v", whole), func(t *testing.T) {
			a, b := newPair(t, f, rdma.EndpointOptions{})
			goAway := b.ep.Close
			if whole {
				goAway = b.dev.Close
			}
			gone := make(chan error, 1)
			taken := 0
			deadline := time.Now().Add(Limit)
			for broken := false; !broken; {
				require.True(t, time.Now().Before(deadline), "the loss is not noticed")
				w := a.write(b, 0, 32<<10)
				w.ID = uint64(taken)
				n, err := a.ep.Post([]rdma.Write{w})
				taken += n
				if taken == 10 && n == 1 {
					go func() { gone <- goAway() }()
				}
				_, perr := a.poll()
				require.NoError(t, perr)
				broken = err != nil || len(a.wrote) > 0 && a.wrote[len(a.wrote)-1].Err != nil
			}
			require.NoError(t, <-gone)
			failed := false
			for i, c := range a.takeWrote(t, taken) {
				require.Equal(t, uint64(i), c.ID)
				if c.Err != nil {
					failed = true
					// A closed device has no regions: both are true.
					require.True(t, errors.Is(c.Err, rdma.ErrPeerLost) || errors.Is(c.Err, rdma.ErrAccess), "%v", c.Err)
					continue
				}
				require.False(t, failed, "write %d went through after one that failed", i)
			}
			a.lost.await(t)
			_, err := a.poll()
			require.NoError(t, err)
			assert.Empty(t, a.wrote)
		})
	}
}

// postUntilError posts until Post fails. It does not poll: the test closes under it.
func postUntilError(s *side, w rdma.Write) error {
	for deadline := time.Now().Add(Limit); time.Now().Before(deadline); {
		n, err := s.ep.Post([]rdma.Write{w, w})
		if err != nil {
			return err
		}
		if n == 0 {
			pause()
		}
	}
	return errors.New("Post goes on after Close")
}

func testCloseWhilePosting(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	for range 10 {
		a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
		w := a.write(b, 0, 20000)
		ended := make(chan error, 1)
		go func() { ended <- postUntilError(a, w) }()
		require.NoError(t, a.pollUntil("some writes", func() bool { return len(a.wrote) >= 3 }))
		require.NoError(t, a.ep.Close())
		assert.ErrorIs(t, <-ended, rdma.ErrClosed)
		b.lost.await(t)
		assert.Empty(t, a.lost.all())
	}
}

func testCloseDeviceWhilePosting(t *testing.T, f Factory) {
	for range 4 {
		a, b := newPair(t, f, rdma.EndpointOptions{})
		src := make([]byte, 20000) // outlives the device
		region, err := a.dev.Register(src)
		require.NoError(t, err)
		w := a.write(b, 0, 100)
		w.Local, w.Region = src, region
		ended := make(chan error, 1)
		go func() { ended <- postUntilError(a, w) }()
		require.NoError(t, a.pollUntil("some writes", func() bool { return len(a.wrote) >= 3 }))
		require.NoError(t, a.dev.Close())
		assert.ErrorIs(t, <-ended, rdma.ErrClosed)
		b.lost.await(t)
		assert.Empty(t, a.lost.all())
	}
}

func testBothClose(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	for range 20 {
		a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
		done := make(chan error, 2)
		for _, s := range []*side{a, b} {
			go func() { done <- s.ep.Close() }()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		// One may have heard of the other before it closed itself.
		assert.LessOrEqual(t, len(a.lost.all()), 1)
		assert.LessOrEqual(t, len(b.lost.all()), 1)
	}
}

// The loss of one peer leaves a device's other connections alone.
func testOthersGoOnAfterLoss(t *testing.T, f Factory) {
	devs := devices(t, f, 3)
	a, _ := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	c, d := pairOn(t, devs[0], devs[2], rdma.EndpointOptions{})
	require.NoError(t, devs[1].Close())
	a.lost.await(t)
	c.send(t, d, []byte("unharmed"), 1)
	d.send(t, c, []byte("both ways"), 2)
	assert.Empty(t, c.lost.all())
	assert.Empty(t, d.lost.all())
}

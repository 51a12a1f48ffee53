package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

var connectTests = []test{
	{"AddressesDiffer", testAddresses},
	{"OneAfterTheOther", testConnectLater},
	{"Garbage", testGarbage},
	{"ChangedAddress", testChangedAddress},
	{"CancelledContext", testCancelledContext},
	{"PeerThatNeverConnects", testAbsentPeer},
	{"ClosedPeer", testConnectToClosed},
	{"CloseDuringConnect", testCloseDuringConnect},
	{"AllPairs", testAllPairs},
	{"Many", testManyConnections},
}

func testAddresses(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	var addrs [][]byte
	ids := map[uint32]bool{}
	for i := range 8 {
		s, err := newSide(devs[i%2], rdma.EndpointOptions{})
		require.NoError(t, err)
		addr := s.ep.Address()
		assert.Equal(t, addr, s.ep.Address(), "an address does not change")
		for _, other := range addrs {
			assert.False(t, bytes.Equal(other, addr), "two endpoints with one address")
		}
		addrs = append(addrs, addr)
		if i%2 == 0 {
			assert.False(t, ids[s.ep.ID()], "an endpoint number is unique in its device")
			ids[s.ep.ID()] = true
		}
	}
}

// The ends may connect at different times: the second starts when the first is under way.
func testConnectLater(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	for range 4 {
		a, b := apart(t, devs[0], devs[1], rdma.EndpointOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), Limit)
		var g errgroup.Group
		started := make(chan struct{})
		g.Go(func() error {
			close(started)
			return a.ep.Connect(ctx, b.ep.Address())
		})
		<-started
		pause()
		g.Go(func() error { return b.ep.Connect(ctx, a.ep.Address()) })
		require.NoError(t, g.Wait())
		cancel()
		meet(a, b)
		b.send(t, a, []byte("first from the later one"), 1)
		a.send(t, b, []byte("and back"), 2)
	}
}

// What is no address is an error and no hang.
func testGarbage(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	s, err := newSide(d, rdma.EndpointOptions{})
	require.NoError(t, err)
	own := s.ep.Address()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	for name, addr := range map[string][]byte{
		"nothing":   nil,
		"empty":     {},
		"one byte":  {1},
		"zeros":     make([]byte, len(own)),
		"ones":      bytes.Repeat([]byte{0xff}, len(own)),
		"noise":     pattern(len(own), 1),
		"truncated": own[:len(own)-1],
		"long":      append(bytes.Clone(own), make([]byte, 1<<16)...),
		"huge":      pattern(1<<20, 2),
	} {
		e, err := newSide(d, rdma.EndpointOptions{})
		require.NoError(t, err)
		err = e.ep.Connect(ctx, addr)
		assert.Error(t, err, name)
		assert.NoError(t, ctx.Err(), "%s: only the deadline ended it", name)
		assert.NoError(t, e.ep.Close())
	}
}

// One changed bit never does harm, and never blocks past the context.
func testChangedAddress(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	peer, err := newSide(devs[1], rdma.EndpointOptions{})
	require.NoError(t, err)
	addr := peer.ep.Address()
	for i := 0; i < len(addr); i += 1 + len(addr)/24 {
		bad := bytes.Clone(addr)
		bad[i] ^= 1 << (i % 8)
		s, err := newSide(devs[0], rdma.EndpointOptions{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		returned := make(chan error, 1)
		go func() { returned <- s.ep.Connect(ctx, bad) }()
		done := false
		for range 2 { // a host that was not run meanwhile finds the first limit over at once, and the context's with it
			select {
			case <-returned: // with or without an error: an address may hold words that do not matter
				done = true
			case <-time.After(Limit):
			}
			if done {
				break
			}
		}
		require.True(t, done, "Connect does not return: byte %d", i)
		cancel()
		require.NoError(t, s.ep.Close())
	}
}

func testCancelledContext(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := apart(t, devs[0], devs[1], rdma.EndpointOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, a.ep.Connect(ctx, b.ep.Address()), context.Canceled)
}

// Connect returns by its deadline when the peer does not connect: nil, if writes may be posted
// already, else the context's error.
func testAbsentPeer(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := apart(t, devs[0], devs[1], rdma.EndpointOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- a.ep.Connect(ctx, b.ep.Address()) }()
	select {
	case err := <-returned:
		if err != nil {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
	case <-time.After(Limit):
		require.FailNow(t, "Connect does not honour its context")
	}
}

// The address of a closed endpoint leads to an error, at the latest when the context ends or the
// connection is used.
func testConnectToClosed(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := apart(t, devs[0], devs[1], rdma.EndpointOptions{})
	addr := b.ep.Address()
	require.NoError(t, b.ep.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := a.ep.Connect(ctx, addr); err == nil {
		expectBroken(t, a)
	}
}

// Close ends a Connect that is under way.
func testCloseDuringConnect(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	for range 8 {
		a, b := apart(t, devs[0], devs[1], rdma.EndpointOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), Limit)
		returned := make(chan error, 1)
		go func() { returned <- a.ep.Connect(ctx, b.ep.Address()) }()
		pause()
		require.NoError(t, a.ep.Close())
		<-returned
		assert.NoError(t, ctx.Err(), "only the deadline ended it")
		cancel()
		err := a.ep.Connect(t.Context(), b.ep.Address())
		assert.True(t, errors.Is(err, rdma.ErrClosed), "connect after close: %v", err)
	}
}

// Four devices, each connected with each.
func testAllPairs(t *testing.T, f Factory) {
	devs := devices(t, f, 4)
	type pair struct{ a, b *side }
	var pairs []pair
	for i := range devs {
		for j := range i {
			a, b := pairOn(t, devs[i], devs[j], rdma.EndpointOptions{})
			pairs = append(pairs, pair{a, b})
		}
	}
	for round := range uint32(3) {
		for i, p := range pairs {
			p.a.send(t, p.b, pattern(500+i, uint64(i)), round)
			p.b.send(t, p.a, pattern(700+i, uint64(i)), round)
		}
	}
}

// Connections come and go on two devices.
func testManyConnections(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	for i := range uint32(40) {
		a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
		a.send(t, b, pattern(100, uint64(i)), i)
		first, second := a, b
		if i%2 == 1 {
			first, second = b, a
		}
		require.NoError(t, first.ep.Close())
		second.lost.await(t)
		require.NoError(t, second.ep.Close())
		for _, s := range []*side{a, b} {
			require.NoError(t, s.mem.Close())
			require.NoError(t, s.cq.Close())
		}
		assert.Empty(t, first.lost.all())
	}
}

package loopback_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/gccl/gccl/rdma/rdmatest"
)

// side is a device with one of everything.
type side struct {
	dev  *loopback.Device
	cq   rdma.CQ
	ep   rdma.Endpoint
	mem  rdma.Region
	lost chan error
}

func newSide(t *testing.T, n *loopback.Network, depth int, opts ...loopback.Option) *side {
	t.Helper()
	s := &side{dev: n.Device(opts...), lost: make(chan error, 8)}
	t.Cleanup(func() { assert.NoError(t, s.dev.Close()) })
	var err error
	s.cq, err = s.dev.NewCQ(depth, nil)
	require.NoError(t, err)
	s.ep, err = s.dev.NewEndpoint(s.cq, rdma.EndpointOptions{RecvDepth: 4, OnLost: func(err error) { s.lost <- err }})
	require.NoError(t, err)
	s.mem, err = s.dev.Alloc(4096, "test")
	require.NoError(t, err)
	return s
}

func newPair(t *testing.T, depth int, opts ...loopback.Option) (a, b *side) {
	t.Helper()
	n := loopback.NewNetwork()
	a, b = newSide(t, n, depth, opts...), newSide(t, n, depth, opts...)
	require.NoError(t, a.ep.Connect(t.Context(), b.ep.Address()))
	require.NoError(t, b.ep.Connect(t.Context(), a.ep.Address()))
	return a, b
}

func poll(t *testing.T, cq rdma.CQ) []rdma.Completion {
	t.Helper()
	cs := make([]rdma.Completion, 64)
	n, err := cq.Poll(cs)
	require.NoError(t, err)
	return cs[:n]
}

// A write is done when Post returns: nothing is under way between two calls.
func TestWriteHappensInPost(t *testing.T) {
	a, b := newPair(t, 16)
	copy(a.mem.Bytes(), "hello")
	n, err := a.ep.Post([]rdma.Write{{
		ID: 7, Local: a.mem.Bytes()[:5], Region: a.mem, Remote: b.mem.Remote(), Offset: 100,
		Imm: 42, HasImm: true, Signaled: true,
	}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	assert.Equal(t, []rdma.Completion{{Kind: rdma.Received, Endpoint: b.ep.ID(), Imm: 42, Len: 5}}, poll(t, b.cq))
	assert.Equal(t, []rdma.Completion{{Kind: rdma.Wrote, Endpoint: a.ep.ID(), ID: 7}}, poll(t, a.cq))
	assert.Equal(t, "hello", string(b.mem.Bytes()[100:105]))
}

func TestCreditsViolated(t *testing.T) {
	a, b := newPair(t, 16)
	ws := make([]rdma.Write, 5) // RecvDepth is 4
	for i := range ws {
		ws[i] = rdma.Write{ID: uint64(i), HasImm: true}
	}
	n, err := a.ep.Post(ws)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	cs := poll(t, a.cq)
	require.Len(t, cs, 1)
	assert.Equal(t, uint64(4), cs[0].ID)
	assert.ErrorContains(t, cs[0].Err, "credits violated")
	assert.Len(t, poll(t, b.cq), 4)
	assert.ErrorContains(t, <-b.lost, "credits violated")
	assert.ErrorContains(t, <-a.lost, "credits violated")
	_, err = a.ep.Post(ws[:1])
	assert.ErrorIs(t, err, rdma.ErrPeerLost)
}

func TestOverrun(t *testing.T) {
	a, b := newPair(t, 2)
	n, err := a.ep.Post(make([]rdma.Write, 3))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	ws := []rdma.Write{{Signaled: true}, {Signaled: true}, {Signaled: true}}
	n, err = a.ep.Post(ws)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	assert.Len(t, poll(t, a.cq), 2)
	_, err = a.cq.Poll(make([]rdma.Completion, 1))
	assert.ErrorContains(t, err, "overrun")
	assert.ErrorContains(t, a.cq.Arm(), "overrun")
	assert.Empty(t, poll(t, b.cq))
}

func TestUnsignaledRunIsRefused(t *testing.T) {
	a, _ := newPair(t, 16, loopback.MaxPosted(8))
	n, err := a.ep.Post(make([]rdma.Write, 5))
	assert.Equal(t, 4, n)
	assert.ErrorContains(t, err, "must be signaled")
	n, err = a.ep.Post([]rdma.Write{{Signaled: true}})
	assert.Equal(t, 1, n)
	assert.NoError(t, err)
	assert.Len(t, poll(t, a.cq), 1)
}

func TestLocalMustLieInRegion(t *testing.T) {
	a, b := newPair(t, 16)
	post := func(w rdma.Write) error {
		n, err := a.ep.Post([]rdma.Write{w})
		require.Zero(t, n)
		return err
	}
	w := rdma.Write{Local: make([]byte, 8), Region: a.mem, Remote: b.mem.Remote()}
	assert.ErrorContains(t, post(w), "not inside its region")
	w.Region = b.mem
	assert.ErrorContains(t, post(w), "not of this device")
	w.Region, w.Local = a.mem, a.mem.Bytes()[:8]
	require.NoError(t, a.mem.Close())
	assert.ErrorIs(t, post(w), rdma.ErrClosed)
	assert.Equal(t, make([]byte, 8), b.mem.Bytes()[:8])
}

func TestCloseTellsPeerWhich(t *testing.T) {
	a, b := newPair(t, 16)
	require.NoError(t, b.dev.Close())
	err := <-a.lost
	assert.ErrorIs(t, err, rdma.ErrPeerLost)
	assert.ErrorContains(t, err, "loopback device 1 closed")
	_, err = a.ep.Post([]rdma.Write{{HasImm: true}})
	assert.ErrorContains(t, err, "loopback device 1 closed")
	assert.Empty(t, a.lost)
	assert.Empty(t, b.lost)
}

// An endpoint has one peer: whoever connects first claims it.
func TestConnectClaims(t *testing.T) {
	n := loopback.NewNetwork()
	a, b, c := newSide(t, n, 4), newSide(t, n, 4), newSide(t, n, 4)
	ctx := t.Context()
	require.NoError(t, a.ep.Connect(ctx, b.ep.Address()))
	assert.ErrorContains(t, c.ep.Connect(ctx, b.ep.Address()), "has another peer")
	assert.ErrorContains(t, b.ep.Connect(ctx, c.ep.Address()), "has connected to it")
	assert.ErrorContains(t, a.ep.Connect(ctx, a.ep.Address()), "to itself")
	assert.NoError(t, b.ep.Connect(ctx, a.ep.Address()))
	assert.ErrorContains(t, b.ep.Connect(ctx, a.ep.Address()), "connected already")
	require.NoError(t, a.ep.Close())
	assert.ErrorIs(t, c.ep.Connect(ctx, a.ep.Address()), rdma.ErrPeerLost)
}

// Another network's endpoint is not found.
func TestNetworksAreApart(t *testing.T) {
	a, b := newSide(t, loopback.NewNetwork(), 4), newSide(t, loopback.NewNetwork(), 4)
	assert.ErrorIs(t, a.ep.Connect(t.Context(), b.ep.Address()), rdma.ErrPeerLost)
}

func TestLoadStoreOption(t *testing.T) {
	a, _ := newPair(t, 4)
	_, ok := a.ep.(rdma.LoadStore)
	assert.True(t, ok)
	a, _ = newPair(t, 4, loopback.LoadStore(false))
	_, ok = a.ep.(rdma.LoadStore)
	assert.False(t, ok)
}

// A sleeping waiter is durably blocked, its timeout is the bubble's, and a signal ends it.
func TestBellInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 4)
		bell := b.dev.Bell()
		start := time.Now()
		bell.Arm()
		bell.Sleep(time.Hour)
		assert.Equal(t, time.Hour, time.Since(start))

		start = time.Now()
		bell.Arm()
		done := make(chan struct{})
		go func() {
			defer close(done)
			bell.Sleep(time.Hour)
		}()
		synctest.Wait()
		a.ep.(rdma.LoadStore).Signal()
		<-done
		assert.Zero(t, time.Since(start))
	})
}

// The address of an endpoint that was closed before its peer connected leads nowhere.
func TestClosedBeforeConnect(t *testing.T) {
	n := loopback.NewNetwork()
	a, b := newSide(t, n, 4), newSide(t, n, 4)
	require.NoError(t, a.ep.Connect(context.Background(), b.ep.Address()))
	require.NoError(t, a.ep.Close())
	err := b.ep.Connect(context.Background(), a.ep.Address())
	assert.True(t, errors.Is(err, rdma.ErrPeerLost), "%v", err)
	assert.Empty(t, b.lost, "the endpoint never was connected")
	b.ep.(rdma.LoadStore).Signal() // to nobody
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	a, b := newPair(t, 16)
	ws := []rdma.Write{{Local: a.mem.Bytes()[:64], Region: a.mem, Remote: b.mem.Remote(), HasImm: true, Signaled: true}}
	cs := make([]rdma.Completion, 4)
	round := func() {
		_, _ = a.ep.Post(ws)
		_, _ = a.cq.Poll(cs)
		_, _ = b.cq.Poll(cs)
		a.ep.(rdma.LoadStore).Signal()
	}
	round()
	assert.Zero(t, testing.AllocsPerRun(100, round))
}

func TestConformance(t *testing.T) {
	for name, opts := range map[string][]loopback.Option{
		"default":     nil,
		"narrow":      {loopback.LoadStore(false), loopback.MaxPosted(2), loopback.MaxMessage(256 << 10), loopback.MaxInline(0)},
		"short queue": {loopback.MaxPosted(5), loopback.MaxInline(8)},
	} {
		t.Run(name, func(t *testing.T) {
			rdmatest.Run(t, func(_ *testing.T, n int) []rdma.Device {
				net := loopback.NewNetwork()
				devs := make([]rdma.Device, n)
				for i := range devs {
					devs[i] = net.Device(opts...)
				}
				return devs
			})
		})
	}
}

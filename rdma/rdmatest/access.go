package rdmatest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var accessTests = []test{
	{"WrongKey", testWrongKey},
	{"OutOfBounds", testOutOfBounds},
	{"ClosedRegion", testClosedRegion},
	{"RegionOfAnotherDevice", testForeignRegion},
	{"OthersGoOn", testOthersGoOn},
	{"RegionClosedUnderTraffic", testRegionClosedUnderTraffic},
}

// expectRefusal posts a write that the peer must refuse and checks what the contract says of it:
// ErrAccess at the poster, and a broken endpoint. A provider that completes a write when its Local
// may be reused, before the peer has looked at it, reports the refusal by the next Post; the peer
// is polled, since it may look in its user's time.
func expectRefusal(t *testing.T, a *side, w rdma.Write, peer *side) {
	t.Helper()
	w.ID = 77
	n, err := a.ep.Post([]rdma.Write{w})
	if err == nil {
		require.Equal(t, 1, n)
		require.NoError(t, a.pollUntil("the refusal", func() bool {
			if peer != nil {
				_, _ = peer.poll()
			}
			if len(a.wrote) > 0 && a.wrote[0].Err == nil && w.Signaled {
				a.wrote, w.Signaled = a.wrote[1:], false // it went through here
			}
			if len(a.wrote) > 0 {
				return true
			}
			_, err = a.ep.Post(nil)
			return err != nil
		}))
		if len(a.wrote) > 0 {
			c := a.takeWrote(t, 1)[0]
			require.Equal(t, uint64(77), c.ID)
			require.Equal(t, a.ep.ID(), c.Endpoint)
			err = c.Err
		}
	}
	require.ErrorIs(t, err, rdma.ErrAccess)
	expectBroken(t, a)
}

// expectBroken checks that nothing more goes through s.
func expectBroken(t *testing.T, s *side) {
	t.Helper()
	eventually(t, "the endpoint is broken", func() bool {
		n, err := s.ep.Post([]rdma.Write{{ID: 78, Signaled: true}})
		if err != nil {
			return true
		}
		if n == 0 {
			_, err = s.poll()
			return err != nil
		}
		return s.takeWrote(t, 1)[0].Err != nil
	})
}

func testWrongKey(t *testing.T, f Factory) {
	for _, change := range []func(*rdma.RemoteRegion){
		func(r *rdma.RemoteRegion) { r.Key++ },
		func(r *rdma.RemoteRegion) { r.Key ^= 1 << 31 },
		func(r *rdma.RemoteRegion) { r.Key = 0 },
	} {
		for _, signaled := range []bool{true, false} {
			a, b := newPair(t, f, rdma.EndpointOptions{})
			fill(a.mem.Bytes(), 1)
			w := a.write(b, 0, 100)
			change(&w.Remote)
			w.HasImm, w.Signaled = true, signaled
			expectRefusal(t, a, w, b)
			assert.Equal(t, make([]byte, memSize), b.mem.Bytes())
			_, _ = b.poll()
			assert.Empty(t, b.received, "a refused write is not announced")
		}
	}
}

func testOutOfBounds(t *testing.T, f Factory) {
	for name, change := range map[string]func(*rdma.Write){
		"one byte beyond":  func(w *rdma.Write) { w.Offset = memSize - 99 },
		"at the end":       func(w *rdma.Write) { w.Offset = memSize },
		"far beyond":       func(w *rdma.Write) { w.Offset = 1 << 40 },
		"offset wraps":     func(w *rdma.Write) { w.Offset = math.MaxUint64 - 50 },
		"address wraps":    func(w *rdma.Write) { w.Offset = -w.Remote.Addr },
		"length is a lie":  func(w *rdma.Write) { w.Remote.Len++; w.Offset = memSize - 99 },
		"length is a page": func(w *rdma.Write) { w.Remote.Len += 4096; w.Offset = memSize },
		"base is a lie":    func(w *rdma.Write) { w.Remote.Addr += memSize - 50 },
		"base is before":   func(w *rdma.Write) { w.Remote.Addr -= 50 },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t, f, rdma.EndpointOptions{})
			fill(a.mem.Bytes(), 1)
			w := a.write(b, 0, 100)
			change(&w)
			if w.Remote == b.mem.Remote() && w.Offset == 0 {
				t.Skip("the change changes nothing: regions begin at address 0")
			}
			expectRefusal(t, a, w, b)
			assert.Equal(t, make([]byte, memSize), b.mem.Bytes())
		})
	}
}

func testClosedRegion(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	a.send(t, b, []byte("before"), 1)
	w := a.write(b, 0, 100)
	require.NoError(t, b.mem.Close())
	expectRefusal(t, a, w, b)
}

// A key of one device opens nothing at another.
func testForeignRegion(t *testing.T, f Factory) {
	devs := devices(t, f, 3)
	a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	third, err := devs[2].Alloc(memSize, "rdmatest third")
	require.NoError(t, err)
	fill(a.mem.Bytes(), 1)
	w := a.write(b, 0, 100)
	w.Remote = third.Remote()
	expectRefusal(t, a, w, b)
	assert.Equal(t, make([]byte, memSize), b.mem.Bytes())
	assert.Equal(t, make([]byte, memSize), third.Bytes())
}

// A refusal breaks one connection, not the devices at its ends.
func testOthersGoOn(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	c, d := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	w := a.write(b, 0, 100)
	w.Remote.Key++
	expectRefusal(t, a, w, b)
	c.send(t, d, []byte("unharmed"), 1)
	d.send(t, c, []byte("both ways"), 2)
	assert.Empty(t, c.lost.all())
	assert.Empty(t, d.lost.all())
}

// Closing a region while a peer writes into it ends in ErrAccess there, and no byte arrives after
// Close has returned.
func testRegionClosedUnderTraffic(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	mem := make([]byte, 64<<10)
	region, err := b.dev.Register(mem)
	require.NoError(t, err)
	if region.Remote().Key == 0 { // memory of the device's own, which cannot be looked at after Close
		region, err = b.dev.Alloc(len(mem), "rdmatest closed")
		require.NoError(t, err)
	}
	remote := region.Remote()
	closed := make(chan error, 1)
	start := make(chan struct{})
	snapshot := make([]byte, len(mem))
	go func() {
		<-start
		err := region.Close()
		copy(snapshot, mem)
		closed <- err
	}()
	var failed error
	deadline := time.Now().Add(Limit)
	for i := 0; failed == nil; i++ {
		if i == 20 {
			close(start)
		}
		require.True(t, time.Now().Before(deadline), "the closed region still takes writes")
		fill(a.mem.Bytes()[:8], uint64(i))
		failed = a.post(rdma.Write{Local: a.mem.Bytes()[:len(mem)], Region: a.mem, Remote: remote, Signaled: true})
		if failed == nil {
			// The peer is polled too: it may receive in its user's time.
			require.NoError(t, a.pollUntil("a write or its refusal", func() bool {
				_, err := b.poll()
				return err != nil || len(a.wrote) > 0
			}))
			failed = a.takeWrote(t, 1)[0].Err
		}
	}
	require.NoError(t, <-closed)
	require.ErrorIs(t, failed, rdma.ErrAccess)
	assert.False(t, errors.Is(failed, rdma.ErrClosed), "%v", failed)
	assert.Equal(t, snapshot, mem)
}

package rdmatest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var flowTests = []test{
	{"PostBeforeConnect", testPostBeforeConnect},
	{"PostNothing", testPostNothing},
	{"FullQueueTakesFewer", testFullQueue},
	{"UnsignaledCompleteSilently", testUnsignaled},
	{"RecvDepthIsHeld", testRecvDepth},
	{"DefaultRecvDepth", testDefaultRecvDepth},
}

func testPostBeforeConnect(t *testing.T, f Factory) {
	s, err := newSide(devices(t, f, 1)[0], rdma.EndpointOptions{})
	require.NoError(t, err)
	n, err := s.ep.Post([]rdma.Write{{Signaled: true}})
	assert.Zero(t, n)
	assert.Error(t, err)
}

func testPostNothing(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	n, err := a.ep.Post(nil)
	assert.Zero(t, n)
	assert.NoError(t, err)
	a.send(t, b, []byte("still works"), 1)
}

// While nothing is polled, Post takes no more than MaxPosted writes, without an error. What it took
// completes, each once and in order, and makes room.
func testFullQueue(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	limit := a.dev.Attr().MaxPosted
	total := 3*limit + 1
	fill(a.mem.Bytes(), 1)
	ws := make([]rdma.Write, total)
	for i := range ws {
		ws[i] = a.write(b, i%1000*16, 16)
		ws[i].ID = uint64(i)
	}
	taken := 0
	for {
		n, err := a.ep.Post(ws[taken:])
		require.NoError(t, err)
		if n == 0 {
			break
		}
		taken += n
		require.LessOrEqual(t, taken, limit, "Post took more than MaxPosted without a poll")
	}
	require.Positive(t, taken)
	require.NoError(t, a.post(ws[taken:]...))
	for i, c := range a.takeWrote(t, total) {
		require.NoError(t, c.Err)
		require.Equal(t, uint64(i), c.ID)
	}
	a.send(t, b, []byte("drained"), 1)
	assert.Equal(t, a.mem.Bytes()[16:16*min(total, 1000)], b.mem.Bytes()[16:16*min(total, 1000)])
	assert.Empty(t, a.wrote)
}

// Unsignaled writes have no completion; the next signaled one frees their places too.
func testUnsignaled(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	every := max(a.dev.Attr().MaxPosted/2, 1)
	total := 12 * every
	fill(a.mem.Bytes(), 2)
	signaled := 0
	for i := range total {
		w := a.write(b, i%1000*16, 16)
		w.ID, w.Signaled = uint64(i), i%every == every-1
		if w.Signaled {
			signaled++
		}
		require.NoError(t, a.post(w))
	}
	for i, c := range a.takeWrote(t, signaled) {
		require.NoError(t, c.Err)
		require.Equal(t, uint64((i+1)*every-1), c.ID)
	}
	a.send(t, b, []byte("last"), 1)
	assert.Empty(t, a.wrote)
	assert.Equal(t, a.mem.Bytes()[16:16*min(total, 1000)], b.mem.Bytes()[16:16*min(total, 1000)])
}

// RecvDepth arrivals may wait unpolled, again and again.
func testRecvDepth(t *testing.T, f Factory) {
	for _, depth := range []int{1, 7, 300} {
		a, b := newPair(t, f, rdma.EndpointOptions{RecvDepth: depth})
		receiveBursts(t, a, b, depth)
	}
}

func testDefaultRecvDepth(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	receiveBursts(t, a, b, 64)
}

func receiveBursts(t *testing.T, a, b *side, depth int) {
	t.Helper()
	for round := range 3 {
		for i := range depth {
			w := a.write(b, i*16, 16)
			w.Imm, w.HasImm = uint32(round*depth+i), true
			require.NoError(t, a.post(w))
		}
		// Everything has left before anything is polled at the peer.
		for _, c := range a.takeWrote(t, depth) {
			require.NoError(t, c.Err)
		}
		for i, c := range b.takeReceived(t, depth) {
			require.Equal(t, uint32(round*depth+i), c.Imm)
		}
	}
	assert.Empty(t, b.lost.all())
}

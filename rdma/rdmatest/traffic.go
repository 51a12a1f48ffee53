package rdmatest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

var trafficTests = []test{
	{"BothDirections", testBothDirections},
	{"ConcurrentEndpoints", testConcurrentEndpoints},
	{"RandomWrites", testRandomWrites},
	{"WritersShareARegion", testSharedRegion},
}

// converse runs a stream on both sides of a pair.
func converse(g *errgroup.Group, st stream, a, b *side) {
	one, two := st, st
	one.seed, one.peer = st.seed, st.seed+1<<40
	two.seed, two.peer = one.peer, one.seed
	g.Go(func() error { return one.run(a, b.mem.Remote()) })
	g.Go(func() error { return two.run(b, a.mem.Remote()) })
}

// messages scales a count down for short runs and for the race detector.
func messages(n uint32) uint32 {
	switch {
	case testing.Short():
		return n / 10
	case raceEnabled:
		return n / 5
	}
	return n
}

func testBothDirections(t *testing.T, f Factory) {
	for i, st := range []stream{
		{window: 1, size: 64, total: messages(1000)},
		{window: 16, size: 8, total: messages(5000)},
		{window: 16, size: 8, total: messages(5000), quiet: true},
		{window: 4, size: 32 << 10, total: messages(400)},
		{window: 32, size: 4000, total: messages(2000), quiet: true},
	} {
		st.seed = uint64(i) << 20
		a, b := newPair(t, f, rdma.EndpointOptions{RecvDepth: st.recvDepth()})
		var g errgroup.Group
		converse(&g, st, a, b)
		require.NoError(t, g.Wait(), "%+v", st)
	}
}

// Different endpoints of two devices are used by different goroutines at once.
func testConcurrentEndpoints(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	var g errgroup.Group
	for i := range 6 {
		st := stream{window: 8, size: 2000, total: messages(800), seed: uint64(i) << 20, quiet: i%2 == 1}
		a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{RecvDepth: st.recvDepth()})
		converse(&g, st, a, b)
	}
	require.NoError(t, g.Wait())
}

// Random writes land as in a model: same bytes, same order, whatever mix of sizes, offsets,
// immediates, signals and inline.
func testRandomWrites(t *testing.T, f Factory) {
	for _, seed := range []uint64{1, 2, 3, rand.Uint64()} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { randomWrites(t, f, seed) })
	}
}

func randomWrites(t *testing.T, f Factory, seed uint64) {
	const depth, slots = 16, 32
	rng := rand.New(rand.NewPCG(seed, 0))
	a, b := newPair(t, f, rdma.EndpointOptions{RecvDepth: depth})
	attr := a.dev.Attr()
	limit := min(attr.MaxMessage, memSize/slots)
	every := max(attr.MaxPosted/2, 1)
	model := make([]byte, memSize)
	inline := make([]byte, attr.MaxInline)
	var imms []uint32 // posted and not yet received
	silent := 0       // unsignaled since the last signaled
	busy := 0         // source slots that a posted write may still read

	// settle is called when the last write posted has an immediate: all others are visible too.
	settle := func() {
		// Both ends are polled: a provider may move data in its users' time.
		require.NoError(t, b.pollUntil("all arrivals", func() bool {
			_, err := a.poll()
			return err != nil || len(b.received) >= len(imms)
		}))
		for i, c := range b.takeReceived(t, len(imms)) {
			require.Equal(t, imms[i], c.Imm)
		}
		imms = imms[:0]
		require.Equal(t, model, b.mem.Bytes())
	}
	for i := range uint64(messages(3000)) {
		n := rng.IntN(65)
		if rng.IntN(3) == 0 {
			n = rng.IntN(limit + 1)
		}
		w := rdma.Write{
			ID: i, Remote: b.mem.Remote(), Offset: uint64(rng.IntN(memSize - n + 1)),
			Imm: rng.Uint32(), HasImm: rng.IntN(4) == 0,
		}
		if n <= attr.MaxInline && n > 0 && rng.IntN(2) == 0 {
			w.Local, w.Inline = inline[:n], true
		} else {
			at := busy * (memSize / slots)
			w.Local, w.Region = a.mem.Bytes()[at:at+n], a.mem
			busy++
		}
		fill(w.Local, rng.Uint64())
		copy(model[w.Offset:], w.Local)
		if silent++; rng.IntN(5) == 0 || silent >= every || busy == slots {
			w.Signaled, silent = true, 0
		}
		require.NoError(t, a.post(w))
		if busy == slots { // and this write is signaled: when it is complete, all are
			for last := i + 1; last != i; {
				c := a.takeWrote(t, 1)[0]
				require.NoError(t, c.Err)
				last = c.ID
			}
			busy = 0
		}
		if w.HasImm {
			if imms = append(imms, w.Imm); len(imms) == depth {
				settle()
			}
		}
	}
	imms = append(imms, 0xfeed)
	require.NoError(t, a.post(rdma.Write{Imm: 0xfeed, HasImm: true, Signaled: true}))
	settle()
}

// Several peers write into parts of one region at once.
func testSharedRegion(t *testing.T, f Factory) {
	const part = 8 << 10
	devs := devices(t, f, 4)
	mem, err := devs[0].Alloc(3*part, "rdmatest shared")
	require.NoError(t, err)
	want := make([]byte, 3*part)
	var g errgroup.Group
	for i := range 3 {
		a, b := pairOn(t, devs[i+1], devs[0], rdma.EndpointOptions{})
		fill(a.mem.Bytes()[:part], uint64(i))
		copy(want[i*part:], a.mem.Bytes()[:part])
		g.Go(func() error {
			const piece = 64
			for at := 0; at < part; at += piece {
				w := a.write(b, at, piece)
				w.Remote, w.Offset, w.HasImm = mem.Remote(), uint64(i*part+at), at == part-piece
				if err := a.post(w); err != nil {
					return err
				}
			}
			return b.pollUntil("the last piece", func() bool { return len(b.received) == 1 })
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, want, mem.Bytes())
}

package rdmatest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

var queueTests = []test{
	{"PollNothing", testPollNothing},
	{"PollInPieces", testPollInPieces},
	{"ArmRingsOnce", testArmRingsOnce},
	{"ArmRingsAtOnceIfSomethingIsThere", testArmWithWork},
	{"ArmRingsForWrites", testArmForWrites},
	{"NoRingUnarmed", testNoRingUnarmed},
	{"ArmWithoutRing", testArmWithoutRing},
	{"NoRingIsLost", testNoRingIsLost},
	{"SharedByEndpoints", testSharedQueue},
}

func testPollNothing(t *testing.T, f Factory) {
	a, _ := newPair(t, f, rdma.EndpointOptions{})
	for _, cs := range [][]rdma.Completion{nil, {}, make([]rdma.Completion, 4)} {
		n, err := a.pollInto(cs)
		assert.Zero(t, n)
		assert.NoError(t, err)
	}
}

// A short slice takes the oldest and leaves the others.
func testPollInPieces(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	const total = 10
	for i := range total {
		require.NoError(t, a.post(rdma.Write{Imm: uint32(i), HasImm: true, Signaled: true}))
	}
	for range a.takeWrote(t, total) {
	}
	cs := make([]rdma.Completion, 3)
	for got := 0; got < total; {
		n, err := b.pollInto(cs[:1+got%3])
		require.NoError(t, err)
		require.LessOrEqual(t, n, 1+got%3)
		for _, c := range cs[:n] {
			require.Equal(t, uint32(got), c.Imm)
			got++
		}
		runtime.Gosched()
	}
}

// awaitRings waits for the n-th ring.
func (s *side) awaitRings(t *testing.T, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("ring %d", n), func() bool { s.drivePeer(); return s.rings.Load() >= n })
	require.Equal(t, n, s.rings.Load())
}

// An armed queue rings for the first arrival and is not armed any more.
func testArmRingsOnce(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for round := range int64(10) {
		require.NoError(t, b.cq.Arm())
		require.NoError(t, b.cq.Arm()) // changes nothing
		require.Equal(t, round, b.rings.Load())
		require.NoError(t, a.post(rdma.Write{Imm: 1, HasImm: true, Signaled: true}))
		b.awaitRings(t, round+1)
		b.takeReceived(t, 1)
		a.takeWrote(t, 1)
		a.send(t, b, []byte("second"), 2) // not announced
		require.Equal(t, round+1, b.rings.Load())
	}
}

func testArmWithWork(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for round := range int64(10) {
		// The second write's arrival is seen, so the first one's is; it stays in the queue.
		require.NoError(t, a.post(
			rdma.Write{Imm: 1, HasImm: true, Signaled: true},
			rdma.Write{Imm: 2, HasImm: true, Signaled: true},
		))
		if a.peer == nil {
			a.takeWrote(t, 2)
		}
		one := make([]rdma.Completion, 1)
		eventually(t, "the first arrival", func() bool {
			n, err := b.pollInto(one)
			require.NoError(t, err)
			return n == 1
		})
		require.Equal(t, uint32(1), one[0].Imm)
		require.NoError(t, b.cq.Arm())
		b.awaitRings(t, round+1)
		require.Equal(t, uint32(2), b.takeReceived(t, 1)[0].Imm)
		if a.peer != nil {
			a.takeWrote(t, 2)
		}
	}
}

func testArmForWrites(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for round := range int64(10) {
		require.NoError(t, a.cq.Arm())
		require.NoError(t, a.post(a.write(b, 0, 1000)))
		a.awaitRings(t, round+1)
		require.NoError(t, a.takeWrote(t, 1)[0].Err)
	}
}

func testNoRingUnarmed(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for i := range uint32(10) {
		a.send(t, b, []byte("quiet"), i)
	}
	assert.Zero(t, a.rings.Load())
	assert.Zero(t, b.rings.Load())
}

func testArmWithoutRing(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	cq, err := d.NewCQ(4, nil)
	require.NoError(t, err)
	assert.NoError(t, cq.Arm())
	assert.NoError(t, cq.Close())
}

// A consumer that arms, polls once more and then waits for the ring never misses an arrival.
func testNoRingIsLost(t *testing.T, f Factory) {
	rounds := int(messages(4000))
	a, b := newPair(t, f, rdma.EndpointOptions{})
	var g errgroup.Group
	for i, s := range []*side{a, b} {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for round := range rounds {
				if round%2 == i { // in turn
					for range rng.IntN(40) {
						runtime.Gosched()
					}
					if err := s.post(rdma.Write{Imm: uint32(round), HasImm: true, Signaled: true}); err != nil {
						return err
					}
					continue
				}
				if err := s.awaitByRing(); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				if got := s.received[0].Imm; got != uint32(round) {
					return fmt.Errorf("round %d: immediate %d", round, got)
				}
				s.received = s.received[1:]
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

// awaitByRing waits until something was received, sleeping on the ring.
func (s *side) awaitByRing() error {
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	for {
		if _, err := s.poll(); err != nil {
			return err
		}
		if len(s.received) > 0 {
			return nil
		}
		if err := s.cq.Arm(); err != nil {
			return err
		}
		select {
		case <-s.rung:
		case <-timer.C:
			_, err := s.poll()
			return fmt.Errorf("no ring in %v; received %d, wrote %d (poll: %v)", Limit, len(s.received), len(s.wrote), err)
		}
	}
}

// Endpoints that share a queue are told apart by their numbers, each with its own order.
func testSharedQueue(t *testing.T, f Factory) {
	const endpoints, each = 16, 20
	devs := devices(t, f, 2)
	depth := endpoints * (64 + min(devs[0].Attr().MaxPosted, 1024))
	shared, err := devs[1].NewCQ(depth, nil)
	require.NoError(t, err)
	source, err := devs[0].NewCQ(depth, nil)
	require.NoError(t, err)
	var froms []rdma.Endpoint
	index := map[uint32]int{}
	for i := range endpoints {
		from, err := devs[0].NewEndpoint(source, rdma.EndpointOptions{})
		require.NoError(t, err)
		to, err := devs[1].NewEndpoint(shared, rdma.EndpointOptions{})
		require.NoError(t, err)
		require.NoError(t, connect(t.Context(), from, to))
		froms = append(froms, from)
		index[to.ID()] = i
	}
	require.Len(t, index, endpoints)
	posted, next, done := make([]int, endpoints), make([]int, endpoints), make([]int, endpoints)
	cs := make([]rdma.Completion, 7)
	left := 2 * endpoints * each
	eventually(t, "all completions", func() bool {
		for i, from := range froms {
			if seq := i*each + posted[i]; posted[i] < each {
				n, err := from.Post([]rdma.Write{{ID: uint64(seq), Imm: uint32(seq), HasImm: true, Signaled: true}})
				require.NoError(t, err)
				posted[i] += n
			}
		}
		for _, q := range []rdma.CQ{source, shared} {
			n, err := q.Poll(cs)
			require.NoError(t, err)
			left -= n
			for _, c := range cs[:n] {
				require.NoError(t, c.Err)
				if c.Kind == rdma.Wrote {
					i := int(c.ID) / each
					require.Equal(t, froms[i].ID(), c.Endpoint)
					require.Equal(t, done[i], int(c.ID)%each)
					done[i]++
					continue
				}
				i, ok := index[c.Endpoint]
				require.True(t, ok)
				require.Equal(t, i*each+next[i], int(c.Imm))
				next[i]++
			}
		}
		return left == 0
	})
}

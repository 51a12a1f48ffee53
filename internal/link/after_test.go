package link

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
)

// lazily makes a mesh of n ranks without links.
func lazily(t *testing.T, n int, g Geometry, noMap bool) []*Mesh {
	network := loopback.NewNetwork()
	var ms []*Mesh
	for r := range n {
		dev := network.Device()
		m, err := New(Config{Rank: r, Size: n, Geometry: g, NoMap: noMap, Lazy: true, Bell: NewBell(), Touch: 1,
			Device: func(int) rdma.Device { return dev }, Describe: func(r int) string { return fmt.Sprintf("rank %d", r) }})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		ms = append(ms, m)
	}
	return ms
}

// meet links two ranks.
func meet(t *testing.T, a, b *Mesh) {
	x, err := a.Join([]int{b.rank})
	require.NoError(t, err)
	y, err := b.Join([]int{a.rank})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- x.Connect(context.Background(), b.rank, y.Blob(a.rank)) }()
	require.NoError(t, y.Connect(context.Background(), a.rank, x.Blob(b.rank)))
	require.NoError(t, <-done)
	x.Done()
	y.Done()
}

// A rank that was told of a failure passes it on to those that join later, as its own word.
func TestFailureReachesWhoJoinsLater(t *testing.T) {
	for _, noMap := range []bool{false, true} {
		ms := lazily(t, 3, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, noMap)
		meet(t, ms[0], ms[1])
		ms[1].Fail(&Notice{Cause: CauseGaveUp, From: 1, Culprit: 1, Text: "enough"})
		_, err := ms[0].Progress()
		require.NoError(t, err)
		require.Equal(t, 1, ms[0].Failed().From)
		meet(t, ms[0], ms[2])
		_, err = ms[2].Progress()
		require.NoError(t, err)
		require.Equal(t, &Notice{Cause: CauseGaveUp, From: 0, Culprit: 1, Text: "enough"}, ms[2].Failed())
	}
}

// Failed may be called while another goroutine adds a peer: one of the two tells it.
func TestFailedWhileSomebodyJoins(t *testing.T) {
	for range 50 {
		ms := lazily(t, 3, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, false)
		meet(t, ms[0], ms[1])
		ms[1].Fail(&Notice{Cause: CauseGaveUp, From: 1, Culprit: 1, Text: "enough"})
		done := make(chan *Notice)
		go func() { done <- ms[0].Failed() }()
		meet(t, ms[0], ms[2])
		require.NotNil(t, <-done)
		require.NotNil(t, ms[2].Failed())
		require.Zero(t, ms[2].Failed().From)
	}
}

// What a peer says of its arena is refused where it cannot be, and never a panic.
func FuzzEntry(f *testing.F) {
	g := Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}
	f.Add(uint64(arenaHead), uint64(0), uint64(0))
	f.Add(uint64(arenaHead-8), uint64(0), uint64(0))
	f.Add(uint64(arenaHead-1), uint64(0), uint64(0))
	f.Add(uint64(0), uint64(4096), uint64(0))
	f.Add(uint64(arenaHead), uint64(g.sectionBytes()+arenaHead), uint64(0))
	f.Add(uint64(arenaHead), uint64(0), uint64(4095))
	f.Fuzz(func(t *testing.T, base, pool, short uint64) {
		for _, pooled := range []bool{false, true} {
			g := g
			g.PoolBytes = 4096 // which Check allows without lanes that have some
			if pooled {
				g.PoolLanes = 1
			}
			network := loopback.NewNetwork()
			var ms [2]*Mesh
			var js [2]*Joining
			for r := range ms {
				dev := network.Device()
				var err error
				ms[r], err = New(Config{Rank: r, Size: 2, Geometry: g, Lazy: true, Bell: NewBell(),
					Device: func(int) rdma.Device { return dev }, Describe: func(r int) string { return fmt.Sprintf("rank %d", r) }})
				require.NoError(t, err)
				js[r], err = ms[r].Join([]int{1 - r})
				require.NoError(t, err)
			}
			b := js[1].Blob(0)
			end := b[len(b)-entryBytes:]
			binary.LittleEndian.PutUint64(end[16:], binary.LittleEndian.Uint64(end[16:])-short)
			binary.LittleEndian.PutUint64(end[24:], base)
			binary.LittleEndian.PutUint64(end[32:], pool)
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(context.Background())
			go func() { done <- js[1].Connect(ctx, 0, js[0].Blob(1)) }()
			err := js[0].Connect(ctx, 1, b)
			if cancel(); base%lineBytes != 0 {
				require.Error(t, err)
			}
			<-done
			for r := range ms {
				require.NoError(t, js[r].Abandon())
				require.NoError(t, ms[r].Close())
			}
		}
	})
}

// Messages that nobody asked for count, however short they are.
func TestStashIsBounded(t *testing.T) {
	for _, noMap := range []bool{false, true} {
		for _, sums := range []bool{false, true} {
			a, b := pair(t, Geometry{Lanes: 1, Slots: 64, SlotBytes: 64, Checksum: sums}, noMap)
			s, r := a.Peer(1).Sender(0), b.Peer(0).Receiver(0)
			for range 16 {
				_, ok := s.Reserve(0)
				require.True(t, ok)
				s.Commit(0, &Call{FP: 1})
			}
			_, err := b.Progress()
			require.NoError(t, err)
			n, messages, err := r.Stash(3 * keptCost)
			require.NoError(t, err)
			require.LessOrEqual(t, messages, 3)
			require.Positive(t, messages)
			require.GreaterOrEqual(t, n, messages*keptCost)
			require.Equal(t, n, r.Stashed())
			for range messages {
				m, err := r.Peek(&Call{FP: 1})
				require.NoError(t, err)
				require.Zero(t, m.Len)
				r.Advance(0)
			}
			require.Zero(t, r.Stashed())
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		}
	}
}

package verify

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tree"
)

func make5(t *testing.T, alg schedule.Algorithm, root int) []schedule.Schedule {
	all := make([]schedule.Schedule, 5)
	for r := range all {
		var err error
		all[r], err = alg(r, len(all), schedule.Shape{Root: root, Pieces: 2})
		require.NoError(t, err)
	}
	return all
}

// TestRotated: every single difference shows.
func TestRotated(t *testing.T) {
	for _, alg := range []schedule.Algorithm{ring.Broadcast, ring.Reduce, tree.Gather, tree.Scatter} {
		first := make5(t, alg, 0)
		require.True(t, rotated(first, make5(t, alg, 3)))
		require.False(t, rotated(first, first[:4]))
		for i, spoil := range []func(st *schedule.Step){
			func(st *schedule.Step) { st.Op++ },
			func(st *schedule.Step) { st.Peer = (st.Peer + 1) % 5 },
			func(st *schedule.Step) { st.Src.First++ },
			func(st *schedule.Step) { st.Dst.First++ },
			func(st *schedule.Step) { st.Dst.Count++ },
			func(st *schedule.Step) { st.Final = !st.Final },
			func(st *schedule.Step) { st.Left = !st.Left },
			func(st *schedule.Step) { st.After.Steps++ },
		} {
			for r := range first {
				for k := range first[r].Lanes[0] {
					b := make5(t, alg, 3)
					spoil(&b[(r+3)%5].Lanes[0][k])
					require.False(t, rotated(first, b), "spoil %d of rank %d step %d", i, r, k)
				}
			}
		}
		for i, spoil := range []func(s *schedule.Schedule){
			func(s *schedule.Schedule) { s.Lazy = !s.Lazy },
			func(s *schedule.Schedule) { s.Ahead++ },
			func(s *schedule.Schedule) { s.Rank = 0 },
			func(s *schedule.Schedule) { s.Lanes = append(s.Lanes, nil) },
			func(s *schedule.Schedule) { s.Lanes[0] = append(s.Lanes[0], schedule.Step{}) },
			func(s *schedule.Schedule) { s.Scratch = append(s.Scratch, schedule.Chunk{}) },
		} {
			b := make5(t, alg, 3)
			spoil(&b[1])
			require.False(t, rotated(first, b), "spoil %d of the head", i)
		}
	}
}

// TestRoots: what is derived for a root is what a run would have reported.
func TestRoots(t *testing.T) {
	for _, a := range []struct {
		make schedule.Algorithm
		c    schedule.Collective
	}{
		{ring.Broadcast, schedule.Broadcast}, {ring.Reduce, schedule.Reduce}, {tree.Broadcast, schedule.Broadcast},
		{tree.Reduce, schedule.Reduce}, {tree.ReduceDouble, schedule.Reduce}, {tree.Gather, schedule.Gather}, {tree.Scatter, schedule.Scatter},
	} {
		for size := 1; size <= 9; size++ {
			var roots, seen []int
			for root := range size {
				roots = append(roots, root)
			}
			err := Roots(a.make, a.c, size, schedule.Shape{}, roots, Options{Channels: 3}, func(root int, rep Report) error {
				seen = append(seen, root)
				want, err := Check(a.make, a.c, size, schedule.Shape{Root: root}, Options{Channels: 3})
				require.NoError(t, err)
				require.Equal(t, want, rep, "%v of %d ranks, root %d", a.c, size, root)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, roots, seen)
		}
	}
}

package verify

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

var symmetrics = []struct {
	make schedule.Algorithm
	c    schedule.Collective
}{
	{ring.AllReduce, schedule.AllReduce}, {ring.ReduceScatter, schedule.ReduceScatter}, {ring.AllGather, schedule.AllGather},
	{direct.AllGatherDirect, schedule.AllGather},
}

// limited is what Symmetric proves.
var limited = Options{Windows: 1, SkipOrder: true, SkipInPlace: true}

// turn makes of rank 0's schedule that of rank r.
func turn(s schedule.Schedule, r int) schedule.Schedule {
	move := func(sp *schedule.Span) {
		if sp.Buf == schedule.In || sp.Buf == schedule.Out {
			sp.First = machine.Turn(&s, sp.Buf, sp.First, r)
		}
	}
	t := s
	t.Rank = r
	t.Scratch = slices.Clone(s.Scratch)
	for i, ch := range t.Scratch {
		t.Scratch[i].Index = machine.Turn(&s, ch.Buf, ch.Index, r)
	}
	t.Lanes = nil
	for _, lane := range s.Lanes {
		lane = slices.Clone(lane)
		for i := range lane {
			move(&lane[i].Src)
			move(&lane[i].Dst)
			if lane[i].Op != schedule.Copy && lane[i].Op != schedule.Combine {
				lane[i].Peer = (lane[i].Peer + r) % s.Size
			}
		}
		t.Lanes = append(t.Lanes, lane)
	}
	return t
}

// TestSymmetric: one rank reports what all of them do.
func TestSymmetric(t *testing.T) {
	for _, a := range symmetrics {
		for size := 1; size <= 9; size++ {
			want, err := Check(a.make, a.c, size, schedule.Shape{}, limited)
			require.NoError(t, err)
			want.Ordered, want.Canonical, want.Uneven = false, false, false
			got, err := Symmetric(a.make, a.c, size, schedule.Shape{})
			require.NoError(t, err)
			require.Equal(t, want, got, "%v of %d ranks", a.c, size)
		}
	}
	_, err := Symmetric(direct.ReduceDirect, schedule.Reduce, 3, schedule.Shape{})
	require.Error(t, err)
	_, err = Symmetric(direct.AllReduceRecursiveDoubling, schedule.AllReduce, 4, schedule.Shape{})
	require.ErrorContains(t, err, "not that of rank 0, turned")
}

// TestSymmetricMutation spoils all ranks alike, a step at a time. One rank must be refused exactly
// where all of them are.
func TestSymmetricMutation(t *testing.T) {
	const size = 4
	refused, passed := 0, 0
	for _, a := range symmetrics {
		for _, spoil := range []func(lane schedule.Lane, i int) schedule.Lane{
			func(lane schedule.Lane, i int) schedule.Lane { return slices.Delete(lane, i, i+1) },
			func(lane schedule.Lane, i int) schedule.Lane { return slices.Insert(lane, i, lane[i]) },
			func(lane schedule.Lane, i int) schedule.Lane {
				j := (i + 1) % len(lane)
				lane[i], lane[j] = lane[j], lane[i]
				return lane
			},
			func(lane schedule.Lane, i int) schedule.Lane { lane[i].Peer = lane[i].Peer%(size-1) + 1; return lane },
			func(lane schedule.Lane, i int) schedule.Lane {
				lane[i].Src.First = (lane[i].Src.First + 1) % size
				return lane
			},
			func(lane schedule.Lane, i int) schedule.Lane {
				lane[i].Dst.First = (lane[i].Dst.First + 1) % size
				return lane
			},
			func(lane schedule.Lane, i int) schedule.Lane { lane[i].Final = !lane[i].Final; return lane },
			func(lane schedule.Lane, i int) schedule.Lane { lane[i].Left = !lane[i].Left; return lane },
		} {
			first, err := a.make(0, size, schedule.Shape{})
			require.NoError(t, err)
			for l := range first.Lanes {
				for i := range first.Lanes[l] {
					s := turn(first, 0)
					s.Lanes[l] = spoil(s.Lanes[l], i)
					if s.Validate() != nil {
						continue
					}
					all := make([]schedule.Schedule, size)
					for r := range all {
						all[r] = turn(s, r)
					}
					_, want := All(all, limited)
					_, got := Symmetric(func(rank, _ int, _ schedule.Shape) (schedule.Schedule, error) {
						return all[rank], nil
					}, a.c, size, schedule.Shape{})
					require.Equal(t, want == nil, got == nil, "%v\nall: %v\none: %v", s, want, got)
					if want == nil {
						passed++
					} else {
						refused++
					}
				}
			}
		}
	}
	t.Logf("%d refused, %d passed", refused, passed)
	require.Greater(t, refused, 100)
	require.Positive(t, passed)
}

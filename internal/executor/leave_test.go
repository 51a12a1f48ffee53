package executor

import (
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
	"github.com/stretchr/testify/require"
)

// A long result that no action reads again is written past the cache; what is passed on from Out is not.
func TestWhatLeaves(t *testing.T) {
	ms := meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})
	wired, _ := meshesOf(t, 2, link.Config{Geometry: link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, NoMap: true})
	in, out := schedule.At(schedule.In, 0), func(i int) schedule.Span { return schedule.At(schedule.Out, i) }
	steps := []schedule.Step{
		{Op: schedule.Copy, Src: in, Dst: out(0)},
		{Op: schedule.Recv, Peer: 1, Dst: out(1)},
		{Op: schedule.Send, Peer: 1, Src: out(0)},
	}
	leaving := func(m *link.Mesh, length int) (got []bool) {
		p, err := Compile(schedule.Schedule{Collective: schedule.AllGather, Rank: 0, Size: 2, In: 1, Out: 2, Lanes: []schedule.Lane{steps}})
		require.NoError(t, err)
		pl, err := p.Plan(m, Layout{Elem: 1, In: []int{length / 2}, Out: []int{length / 2, length / 2}}, 0)
		require.NoError(t, err)
		for _, a := range pl.lanes[0] {
			got = append(got, a.leaves)
		}
		return got
	}
	require.Equal(t, []bool{false, true, false}, leaving(ms[0], leaveMin))
	require.NotContains(t, leaving(ms[0], leaveMin-2), true, "short")
	require.NotContains(t, leaving(wired[0], leaveMin), true, "it may have landed there")
}

// Nothing is written past the cache to where it is read from.
func TestLeavesNotInPlace(t *testing.T) {
	l, a, b := &lane{}, make([]byte, storeMin), make([]byte, storeMin)
	require.True(t, l.leaves([][]byte{a, b}, [][]byte{b, b}, storeMin))
	require.False(t, l.leaves([][]byte{a, b}, [][]byte{b, a}, storeMin))
	require.False(t, l.leaves([][]byte{a, b}, [][]byte{b, b}, storeMin-1))
}

package verify

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
)

// gathers is a schedule with all that channels must keep apart: lanes, Afters, scratch, and spans
// over several blocks.
func gathers() schedule.Schedule {
	return schedule.Schedule{
		Collective: schedule.AllGather, Rank: 0, Size: 2, In: 2, Out: 4,
		Scratch: []schedule.Chunk{{Buf: schedule.Out, Index: 2}, {Buf: schedule.Out, Index: 3}},
		Lanes: []schedule.Lane{
			{
				{Op: schedule.Send, Peer: 1, Src: schedule.Span{Buf: schedule.In, Count: 2}},
				{Op: schedule.Recv, Peer: 1, Dst: schedule.Span{Buf: schedule.Out, Count: 4}},
				{Op: schedule.Recv, Peer: 1, Dst: schedule.Span{Buf: schedule.Scratch, Count: 2}},
			},
			{
				{Op: schedule.Copy, Src: schedule.Span{Buf: schedule.Scratch, Count: 2},
					Dst: schedule.Span{Buf: schedule.Out, First: 2, Count: 2}, After: schedule.After{Steps: 3}},
			},
		},
	}
}

// TestCopyOf: a copy of several cuts the span over two blocks, and moves the After with it.
func TestCopyOf(t *testing.T) {
	s := gathers()
	require.NoError(t, s.Validate())
	one, err := copyOf(&s, 4)
	require.NoError(t, err)
	require.NoError(t, one.Validate())
	want := gathers()
	recv := want.Lanes[0][1]
	recv.Dst.Count = 2
	next := recv
	next.Dst.First = 2
	want.Lanes[0] = schedule.Lane{want.Lanes[0][0], recv, next, want.Lanes[0][2]}
	want.Lanes[1][0].After.Steps = 4
	require.Equal(t, want.String(), one.String())
	again, err := copyOf(&one, 4)
	require.NoError(t, err)
	require.Equal(t, one.String(), again.String(), "a copy is cut once")
}

// TestSeparate spoils every number of every step of copies, and their heads: nothing may pass.
func TestSeparate(t *testing.T) {
	s := gathers()
	const n = 3
	spoils := []func(st *schedule.Step){
		func(st *schedule.Step) { st.Op = schedule.Combine },
		func(st *schedule.Step) { st.Peer++ },
		func(st *schedule.Step) { st.Left = true },
		func(st *schedule.Step) { st.Final = true },
	}
	for _, by := range []int{-2, -1, 1, 2, 4, 6} {
		spoils = append(spoils,
			func(st *schedule.Step) { st.Src.First += by },
			func(st *schedule.Step) { st.Dst.First += by },
			func(st *schedule.Step) { st.Src.Count += by },
			func(st *schedule.Step) { st.After.Lane += by },
			func(st *schedule.Step) { st.After.Steps += by },
		)
	}
	for i, spoil := range spoils {
		for l := range n * len(s.Lanes) {
			all := schedule.Channels(s, n)
			for k := range all.Lanes[l] {
				st := &all.Lanes[l][k]
				was := *st
				spoil(st)
				// What a step does not use may be anything.
				if st.Src.Buf == schedule.None {
					st.Src = was.Src
				}
				if st.Dst.Buf == schedule.None {
					st.Dst = was.Dst
				}
				if st.After.Steps <= 0 {
					st.After = was.After
				}
				if *st != was {
					_, err := separate(&s, &all, n)
					require.Error(t, err, "spoil %d: %v instead of %v in lane %d", i, *st, was, l)
				}
				*st = was
			}
		}
	}
	for i, spoil := range []func(s *schedule.Schedule){
		func(s *schedule.Schedule) { s.Rank++ },
		func(s *schedule.Schedule) { s.Out++ },
		func(s *schedule.Schedule) { s.Lazy = true },
		func(s *schedule.Schedule) { s.Lanes = s.Lanes[1:] },
		func(s *schedule.Schedule) { s.Scratch[4].Index++ },
		func(s *schedule.Schedule) { s.Scratch[1].Index += 2 },
	} {
		all := schedule.Channels(s, n)
		spoil(&all)
		_, err := separate(&s, &all, n)
		require.Error(t, err, "spoil %d", i)
	}
}

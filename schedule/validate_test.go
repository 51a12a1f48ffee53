package schedule_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
)

// TestValidate breaks every invariant once.
func TestValidate(t *testing.T) {
	type S = schedule.Schedule
	out := func(first, count int) schedule.Span {
		return schedule.Span{Buf: schedule.Out, First: first, Count: count}
	}
	for _, tc := range []struct {
		name  string
		spoil func(s *S)
		want  string
	}{
		{"collective", func(s *S) { s.Collective = 77 }, "rank 1: collective: collective(77) is none"},
		{"no collective", func(s *S) { s.Collective = 0 }, "collective: collective(0) is none"},
		{"size", func(s *S) { s.Size = 0 }, "size: 0"},
		{"rank", func(s *S) { s.Rank = 3 }, "rank: 3 outside 3 ranks"},
		{"root", func(s *S) { s.Root = -1 }, "root: -1 outside 3 ranks"},
		{"root of none", func(s *S) { s.Collective = schedule.Scan }, "root: 1 in scan, which has none"},
		{"ahead", func(s *S) { s.Ahead = -1 }, "ahead: -1"},
		{"out off the root", func(s *S) { s.Root = 0 }, "in, out: 4 and 4 chunks do not divide 1 and 0 blocks alike"},
		{"in and out", func(s *S) { s.In = 5 }, "in, out: 5 and 4 chunks do not divide 1 and 1 blocks alike"},
		{"nothing", func(s *S) { s.In, s.Out = 0, 0 }, "do not divide"},
		{"scratch", func(s *S) { s.Scratch[1].Index = 4 }, "scratch[1]: has the size of out[4], which does not exist"},
		{"scratch of scratch", func(s *S) { s.Scratch[0].Buf = schedule.Scratch }, "scratch[0]: has the size of scratch[0]"},
		{"op", func(s *S) { s.Lanes[0][0].Op = 9 }, "rank 1 lane 0 step 0 (op(9)): op: op(9) is none"},
		{"self", func(s *S) { s.Lanes[0][0].Peer = 1 }, "rank 1 lane 0 step 0 (send): peer: 1 is no other rank of 3"},
		{"peer", func(s *S) { s.Lanes[0][1].Peer = 3 }, "step 1 (recv): peer: 3 is no other rank of 3"},
		{"local peer", func(s *S) { s.Lanes[1][0].Peer = 2 }, "lane 1 step 0 (copy): peer: 2 in a local step"},
		{"src used", func(s *S) { s.Lanes[0][1].Src = out(0, 1) }, "src: out[0] is not used here and must be zero"},
		{"dst used", func(s *S) { s.Lanes[0][0].Dst = out(0, 1) }, "dst: out[0] is not used here and must be zero"},
		{"src missing", func(s *S) { s.Lanes[0][0].Src = schedule.Span{} }, "src: missing"},
		{"count", func(s *S) { s.Lanes[0][0].Src.Count = 0 }, "src: in[0:0] outside 4 chunks"},
		{"outside", func(s *S) { s.Lanes[0][1].Dst.First = 3 }, "dst: out[3:5] outside 4 chunks"},
		{"overflow", func(s *S) { s.Lanes[0][1].Dst = out(1<<62, 1<<62) }, "outside 4 chunks"},
		{"negative", func(s *S) { s.Lanes[0][1].Dst.First = -1 }, "outside 4 chunks"},
		{"writes in", func(s *S) { s.Lanes[0][1].Dst.Buf = schedule.In }, "dst: in[2:4] is never written"},
		{"counts", func(s *S) { s.Lanes[1][0].Src.Count = 3 }, "src, dst: in[0:3] and scratch[0:2] have different counts"},
		{"sizes", func(s *S) { s.Lanes[1][0].Src.First = 1 }, "src, dst: in[1] and scratch[0] have different sizes"},
		{"overlap", func(s *S) {
			s.Lanes[0][2].Src, s.Lanes[0][2].Dst = out(0, 2), out(1, 2)
		}, "src, dst: out[0:2] and out[1:3] overlap"},
		{"combine itself", func(s *S) {
			s.Lanes[1][1].Src = s.Lanes[1][1].Dst
		}, "src, dst: scratch[0] and scratch[0] overlap"},
		{"reduces nothing", func(s *S) { s.Collective = schedule.Broadcast }, "op: broadcast reduces nothing"},
		{"left", func(s *S) { s.Lanes[0][1].Left = true }, "left: only recv-reduce and combine have a left operand"},
		{"final send", func(s *S) { s.Lanes[0][0].Final = true }, "final: nothing to finish in send of reduce"},
		{"final scan", func(s *S) { s.Collective, s.Root = schedule.Scan, 0 }, "final: nothing to finish in recv-reduce of scan"},
		{"after itself", func(s *S) { s.Lanes[1][1].After.Lane = 1 }, "after: a lane is always in order"},
		{"after nobody", func(s *S) { s.Lanes[1][1].After.Lane = 2 }, "after: no lane 2"},
		{"after too much", func(s *S) { s.Lanes[1][1].After.Steps = 5 }, "after: lane 0 has 4 steps, not 5"},
		{"after nothing", func(s *S) { s.Lanes[0][1].After = schedule.After{Lane: 1} }, "after: lane 1 has 4 steps, not 0"},
		{"circle", func(s *S) {
			s.Lanes[0][1].After = schedule.After{Lane: 1, Steps: 2}
		}, "lane 0 step 1 (recv): after: waits in a circle for 2 steps of lane 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := everything()
			tc.spoil(&s)
			err := s.Validate()
			require.ErrorContains(t, err, tc.want)
			var invalid *schedule.InvalidError
			require.True(t, errors.As(err, &invalid))
		})
	}
}

func TestCollectives(t *testing.T) {
	for _, c := range schedule.Collectives() {
		back, err := schedule.ParseCollective(c.String())
		require.NoError(t, err)
		require.Equal(t, c, back)
	}
	require.Len(t, schedule.Collectives(), 10)
	_, err := schedule.ParseCollective("")
	require.Error(t, err)
	blocks := func(c schedule.Collective, rank int) [2]int {
		in, out := c.Blocks(rank, 5, 2)
		return [2]int{in, out}
	}
	require.Equal(t, [2]int{1, 1}, blocks(schedule.AllReduce, 0))
	require.Equal(t, [2]int{5, 1}, blocks(schedule.ReduceScatter, 0))
	require.Equal(t, [2]int{1, 5}, blocks(schedule.AllGather, 0))
	require.Equal(t, [2]int{0, 1}, blocks(schedule.Broadcast, 0))
	require.Equal(t, [2]int{1, 1}, blocks(schedule.Broadcast, 2))
	require.Equal(t, [2]int{1, 0}, blocks(schedule.Reduce, 0))
	require.Equal(t, [2]int{1, 0}, blocks(schedule.Gather, 0))
	require.Equal(t, [2]int{1, 5}, blocks(schedule.Gather, 2))
	require.Equal(t, [2]int{0, 1}, blocks(schedule.Scatter, 0))
	require.Equal(t, [2]int{5, 1}, blocks(schedule.Scatter, 2))
	require.Equal(t, [2]int{5, 5}, blocks(schedule.AllToAll, 0))
	require.Equal(t, [2]int{1, 1}, blocks(schedule.Exscan, 0))
}

func TestMaxSegments(t *testing.T) {
	for _, tc := range []struct{ ahead, slots, want int }{
		{0, 0, 0}, {0, 1, int(^uint(0) >> 1)}, {1, 1, 0}, {1, 2, 1}, {1, 8, 7}, {3, 8, 2}, {3, 3, 0},
	} {
		s := schedule.Schedule{Ahead: tc.ahead}
		require.Equal(t, tc.want, s.MaxSegments(tc.slots), "%+v", tc)
	}
}

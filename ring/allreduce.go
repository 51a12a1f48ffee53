package ring

import (
	"github.com/gccl/gccl/schedule"
)

// AllReduce is a ring ReduceScatter followed by a ring AllGather over as many chunks as ranks.
//
// Chunk c starts at rank c, is reduced at every rank that it comes to, is complete at rank c−1
// and goes round once more. With four ranks, c first:
//
//	step      1        2        3        4        5        6
//	chunk 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2
//	chunk 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3
//	…         └ reduced on the way ┘     └ passed on as it is ┘
//
// Cost: 2(p−1) steps, 2(p−1) chunks of S/p sent by every rank, which is optimal (Patarasuk and
// Yuan 2009, theorem 1). The reduction of chunk c is ((x_c ⊕ x_c+1) ⊕ …) ⊕ x_c−1, the same on all
// ranks; it does not keep rank order.
//
// Everybody sends before it receives, so that a link must hold one chunk: Ahead is 1.
func AllReduce(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	s, err := begin(schedule.AllReduce, rank, size, shape, size)
	if err != nil {
		return s, err
	}
	s.Early, s.Lazy = true, true
	if size == 1 {
		s.Lanes[0] = schedule.Lane{{Op: schedule.Copy, Src: schedule.At(schedule.In, 0), Dst: schedule.At(schedule.Out, 0), Final: true}}
		return s, nil
	}
	s.Ahead = 1
	next, prev := mod(rank+1, size), mod(rank-1, size)
	lane := make(schedule.Lane, 0, 4*(size-1))
	lane = append(lane, schedule.Step{Op: schedule.Send, Peer: next, Src: schedule.At(schedule.In, rank)})
	for k := 1; k < size; k++ {
		c := mod(rank-k, size)
		lane = append(lane,
			schedule.Step{Op: schedule.RecvReduce, Peer: prev, Src: schedule.At(schedule.In, c), Dst: schedule.At(schedule.Out, c),
				Left: true, Final: k == size-1},
			schedule.Step{Op: schedule.Send, Peer: next, Src: schedule.At(schedule.Out, c)})
	}
	for k := range size - 1 {
		c := mod(rank-k, size)
		lane = append(lane, schedule.Step{Op: schedule.Recv, Peer: prev, Dst: schedule.At(schedule.Out, c)})
		if k < size-2 {
			lane = append(lane, schedule.Step{Op: schedule.Send, Peer: next, Src: schedule.At(schedule.Out, c)})
		}
	}
	s.Lanes[0] = lane
	return s, nil
}

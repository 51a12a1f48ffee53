package ring

import "github.com/gccl/gccl/schedule"

// ReduceScatter passes partial results round until each ends at its rank.
//
// Block c starts at rank c+1, is reduced into at every rank that it comes to, and is complete at
// rank c. With four ranks:
//
//	step      1        2        3
//	block 0   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0
//	block 1   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1
//	block 2   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2
//	block 3   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3
//
// Cost: p−1 steps; every rank sends p−1 blocks, the least possible. Block c is
// ((x_c+1 ⊕ x_c+2) ⊕ …) ⊕ x_c.
//
// All ranks send before they receive, so that Ahead is 1. A partial result passes through the one
// chunk of Scratch, which the next one overwrites: it cannot be Lazy, and blocks must have one length.
// An executor that streams the
// groups of [schedule.Fuse] stores nothing there.
func ReduceScatter(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	s, err := begin(schedule.ReduceScatter, rank, size, shape, 1)
	if err != nil {
		return s, err
	}
	s.Early = true
	if size == 1 {
		s.Lanes = alone(s)
		return s, nil
	}
	s.Ahead = 1
	if size > 2 {
		s.Scratch = []schedule.Chunk{{Buf: schedule.Out}}
	}
	w := newWalker(rank, size, 2*(size-1))
	w.send(in(mod(rank-1, size)))
	for k := 2; k < size; k++ {
		w.reduce(scratch(0), in(mod(rank-k, size)), false)
		w.send(scratch(0))
	}
	w.reduce(out(0), in(rank), true)
	s.Lanes = []schedule.Lane{w.lane}
	return s, nil
}

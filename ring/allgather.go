package ring

import "github.com/gccl/gccl/schedule"

// AllGather passes every rank's block round the ring.
//
//	step      1        2        3
//	block 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3
//	block 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0
//	block 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1
//	block 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2
//
// Cost: p−1 steps; every rank sends p−1 blocks, the least possible.
//
// All ranks send before they receive, so that Ahead is 1. It is Early and Lazy: each block of Out
// is written once.
func AllGather(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	s, err := begin(schedule.AllGather, rank, size, shape, 1)
	if err != nil {
		return s, err
	}
	s.Early, s.Lazy = true, true
	if size == 1 {
		s.Lanes = alone(s)
		return s, nil
	}
	s.Ahead = 1
	w := newWalker(rank, size, 2*size-1)
	w.send(in(0))
	w.copy(out(rank), in(0)) // while the first block is on its way
	for k := 1; k < size; k++ {
		c := mod(rank-k, size)
		w.recv(out(c))
		if k < size-1 {
			w.send(out(c))
		}
	}
	s.Lanes = []schedule.Lane{w.lane}
	return s, nil
}

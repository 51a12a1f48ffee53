package ring

import "github.com/gccl/gccl/schedule"

// AllReduce is a ring ReduceScatter followed by a ring AllGather over as many chunks as ranks.
//
// Chunk c starts at rank c, is reduced into at every rank that it comes to, is complete at rank
// c−1, and goes round once more. With four ranks:
//
//	step      1        2        3        4        5        6
//	chunk 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2
//	chunk 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3
//	chunk 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0
//	chunk 3   3 ─▶ 0   0 ─▶ 1   1 ─▶ 2   2 ─▶ 3   3 ─▶ 0   0 ─▶ 1
//	          └─ reduced on the way ─┘   └── passed on as it is ──┘
//
// Cost: 2(p−1) steps; every rank sends 2(p−1) chunks of S/p bytes, the least possible (Patarasuk
// and Yuan 2009, theorem 1). Chunk c is ((x_c ⊕ x_c+1) ⊕ …) ⊕ x_c−1 on all ranks: the same bits
// everywhere, but not in the order of the ranks.
//
// All ranks send before they receive, so that Ahead is 1. It is Early and Lazy: a chunk comes back
// complete only after everybody has read what this rank sent of it.
func AllReduce(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	s, err := begin(schedule.AllReduce, rank, size, shape, size)
	if err != nil {
		return s, err
	}
	s.Early, s.Lazy = true, true
	if size == 1 {
		s.Lanes = alone(s)
		return s, nil
	}
	s.Ahead = 1
	w := newWalker(rank, size, 4*(size-1))
	w.send(in(rank))
	for k := 1; k < size; k++ {
		c := mod(rank-k, size)
		w.reduce(out(c), in(c), k == size-1)
		w.send(out(c))
	}
	for k := range size - 1 {
		c := mod(rank-k, size)
		w.recv(out(c))
		if k < size-2 {
			w.send(out(c))
		}
	}
	s.Lanes = []schedule.Lane{w.lane}
	return s, nil
}

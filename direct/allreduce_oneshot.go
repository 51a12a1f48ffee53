package direct

import "github.com/gccl/gccl/schedule"

// AllReduceOneShot sends every rank's whole vector to every other rank, and every rank folds the
// p contributions in rank order by itself. One message delay, at p−1 times the traffic that is
// needed: for the smallest messages.
//
//	cost: α + (p−1)·Sβ + (p−1)·Sγ
//
//	r0 ──x0──▶ r1, r2        each: Out = (x0 ⊕ x1) ⊕ x2
//	r1 ──x1──▶ r0, r2
//	r2 ──x2──▶ r0, r1
//
// All ranks evaluate the same expression, so they hold identical bits. Known as "all pairs" in
// MSCCL++ and "one-shot" in NCCL's and FlashInfer's kernels.
func AllReduceOneShot(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	lane := make(schedule.Lane, 0, 2*size)
	for k := 1; k < size; k++ {
		lane = append(lane, send((rank+k)%size, at(schedule.In, 0)))
	}
	lane = append(lane, fold(rank, size, at(schedule.In, 0), at(schedule.Out, 0))...)
	return schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: 1, Out: 1, Lanes: []schedule.Lane{lane},
		// Nothing says when the others have read In, and in place the fold overwrites it.
		Ahead: min(1, size-1), Early: true, Lazy: size == 1,
	}, nil
}

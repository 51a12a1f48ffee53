package direct

import "github.com/gccl/gccl/schedule"

// ReduceScatterDirect sends block p of every rank straight to rank p, which folds the
// contributions in rank order.
//
//	cost: α + (p−1)/p·Sβ + (p−1)/p·Sγ
//
//	r0 ──block 1──▶ r1     r0: Out = (x0[0] ⊕ x1[0]) ⊕ x2[0]
//	r0 ──block 2──▶ r2     and so on for every rank
func ReduceScatterDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	lane := deal(rank, size)
	lane = append(lane, fold(rank, size, at(schedule.In, rank), at(schedule.Out, 0))...)
	return schedule.Schedule{
		Collective: schedule.ReduceScatter, Rank: rank, Size: size,
		In: size, Out: 1, Lanes: []schedule.Lane{lane},
		Ahead: min(1, size-1), Early: true, Lazy: true, // In place only block rank is written, which nobody else reads.
	}, nil
}

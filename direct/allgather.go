package direct

import "github.com/gccl/gccl/schedule"

// AllGatherDirect sends every rank's data straight to every other rank.
//
//	cost: α + (p−1)/p·Sβ
//
//	r0 ──x0──▶ r1, r2
//	r1 ──x1──▶ r2, r0
//	r2 ──x2──▶ r0, r1
func AllGatherDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	lane := make(schedule.Lane, 0, 2*size)
	for k := 1; k < size; k++ {
		lane = append(lane, send((rank+k)%size, at(schedule.In, 0)))
	}
	lane = append(lane, copyTo(at(schedule.In, 0), at(schedule.Out, rank)))
	lane = collect(lane, rank, size)
	return schedule.Schedule{
		Collective: schedule.AllGather, Rank: rank, Size: size,
		In: 1, Out: size, Lanes: []schedule.Lane{lane},
		Ahead: min(1, size-1), Early: true, Lazy: true,
	}, nil
}

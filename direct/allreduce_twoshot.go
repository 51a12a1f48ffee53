package direct

import "github.com/gccl/gccl/schedule"

// AllReduceTwoShot is a direct reduce-scatter followed by a direct all-gather: chunk p of
// everybody goes to rank p, which folds it in rank order and sends the result to everybody. Two
// message delays at the least possible traffic: the algorithm for ranks of one host.
//
//	cost: 2α + 2(p−1)/p·Sβ + (p−1)/p·Sγ
//
//	        chunk 0        chunk 1        chunk 2
//	r0      ◀─ r1, r2      ─▶ r1          ─▶ r2         then each owner
//	r1      ─▶ r0          ◀─ r0, r2      ─▶ r2         sends its chunk
//	r2      ─▶ r0          ─▶ r1          ◀─ r0, r1     to all others
//
// Targets are rotated (r+1, r+2, …) so that no rank is everybody's first target. A rank writes
// chunk p of Out only when p has sent it, and p has then read this rank's chunk p of In: so
// Lazy and Early hold in place, too.
func AllReduceTwoShot(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	lane := deal(rank, size)
	lane = append(lane, fold(rank, size, at(schedule.In, rank), at(schedule.Out, rank))...)
	for k := 1; k < size; k++ {
		lane = append(lane, send((rank+k)%size, at(schedule.Out, rank)))
	}
	lane = collect(lane, rank, size)
	return schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: size, Out: size, Lanes: []schedule.Lane{lane},
		Ahead: min(1, size-1), Early: true, Lazy: true,
	}, nil
}

package direct

import "github.com/gccl/gccl/schedule"

// exchanges is how many exchanges of a pairwise all-to-all are in flight: enough to cover the
// delay of one message by the transfer of others, few enough for the links' slots to stay in cache.
const exchanges = 4

// AllToAllPairwise exchanges block p with every rank p: at distance k a rank sends to r+k and
// receives from r−k, so that every rank is the target of one message at a time. Distances are
// dealt over a few lanes, which do not wait for one another.
//
//	cost: (p−1)α + (p−1)/p·Sβ
//
//	distance 1:  r0 ─▶ r1 ─▶ r2 ─▶ r3 ─▶ r0
//	distance 2:  r0 ─▶ r2 ─▶ r0,  r1 ─▶ r3 ─▶ r1
//
// A block travels only between its two owners, so AllToAllV works with each rank knowing its own
// counts alone. Out must not be In: block p of Out arrives when it likes, and p may not have read
// block p of In yet.
func AllToAllPairwise(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	ls := make([]schedule.Lane, min(exchanges, size))
	for k := range size {
		to, from := (rank+k)%size, (rank-k+size)%size
		l := k % len(ls)
		if k == 0 {
			ls[l] = append(ls[l], copyTo(at(schedule.In, to), at(schedule.Out, from)))
			continue
		}
		ls[l] = append(ls[l], send(to, at(schedule.In, to)), recv(from, at(schedule.Out, from)))
	}
	return schedule.Schedule{
		Collective: schedule.AllToAll, Rank: rank, Size: size,
		In: size, Out: size, Lanes: ls,
		Ahead: min(1, size-1), Early: true, Lazy: true, Disjoint: true,
	}, nil
}

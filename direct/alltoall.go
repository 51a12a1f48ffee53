package direct

import "github.com/gccl/gccl/schedule"

// exchanges is how many exchanges of a pairwise all-to-all are in flight in each direction: enough to
// cover the delay of one message by the transfer of others, few enough for the links' slots to stay in cache.
const exchanges = 2

// AllToAllPairwise exchanges block p with every rank p: at distance k a rank sends to r+k and
// receives from r−k, so that every rank is the target of one message at a time. Distances are
// dealt over a few lanes, which do not wait for one another; what goes up (to a higher rank) and what
// goes down has lanes of its own. So no lane has a cycle of ranks that all send first: in an
// upward lane the last rank only receives, then the one before it can send, and so on. Blocks of any
// length pass through any number of slots.
//
//	cost: ⌈(p−1)/2⌉α + (p−1)/p·Sβ
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
	n := min(exchanges, size-1) // lanes for each direction
	ls := make([]schedule.Lane, max(1, 2*n))
	ls[0] = append(ls[0], copyTo(at(schedule.In, rank), at(schedule.Out, rank)))
	for k := 1; k < size; k++ {
		to, from := (rank+k)%size, (rank-k+size)%size
		lane := func(from, to int) int {
			if from < to {
				return k % n
			}
			return n + k%n
		}
		l := lane(rank, to)
		ls[l] = append(ls[l], send(to, at(schedule.In, to)))
		l = lane(from, rank)
		ls[l] = append(ls[l], recv(from, at(schedule.Out, from)))
	}
	return schedule.Schedule{
		Collective: schedule.AllToAll, Rank: rank, Size: size,
		In: size, Out: size, Lanes: ls,
		Early: true, Lazy: true, Disjoint: true,
	}, nil
}

// AllToAllDirect sends block p straight to every rank p, all blocks before the first is received: where ranks
// outnumber cores, none yields before all that others wait for has left it. AllToAllPairwise receives between its sends.
//
//	cost: α + (p−1)/p·Sβ
//
//	r0 ──x01──▶ r1, ──x02──▶ r2
//	r1 ──x12──▶ r2, ──x10──▶ r0
//	r2 ──x20──▶ r0, ──x21──▶ r1
//
// Each link has to hold a block of the window that is sent.
func AllToAllDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	lane := deal(rank, size)
	lane = append(lane, copyTo(at(schedule.In, rank), at(schedule.Out, rank)))
	lane = collect(lane, rank, size)
	return schedule.Schedule{
		Collective: schedule.AllToAll, Rank: rank, Size: size,
		In: size, Out: size, Lanes: []schedule.Lane{lane},
		Ahead: min(1, size-1), Early: true, Lazy: true, Disjoint: true,
	}, nil
}

package direct

import "github.com/gccl/gccl/schedule"

// AllGatherDoubling exchanges all that a rank holds with partners at distances 1, 2, 4, … Sizes
// that are no power of two are folded: a rank hands its block to its neighbour and gets the others
// from it.
//
//	cost: p = 2^m: mα + (p−1)/p·Sβ;
//	      other p: (⌊log₂ p⌋+2)α + <7/3·Sβ
//
//	        r0     r1     r2     r3
//	1       01     01     23     23
//	2       0123   0123   0123   0123
//
// Thakur, Rabenseifner & Gropp 2005.
func AllGatherDoubling(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.AllGather, Rank: rank, Size: size,
		In: 1, Out: size, Early: true, Lazy: true,
	}
	gs := powerGroups(size, 2)
	s.Ahead = gs.first(gs.count / 2)
	me := gs.of(rank)
	leader, end := gs.first(me), gs.first(me+1)
	lane := schedule.Lane{copyTo(at(schedule.In, 0), at(schedule.Out, rank))}
	others := func(f func(schedule.Span)) { // all blocks but that of the rank end−1
		f(span(schedule.Out, 0, end-1))
		if end < size {
			f(span(schedule.Out, end, size-end))
		}
	}
	if rank != leader {
		lane = append(lane, send(leader, at(schedule.In, 0)))
		others(func(sp schedule.Span) { lane = append(lane, recv(leader, sp)) })
		s.Lanes = []schedule.Lane{lane}
		return s, nil
	}
	if end-leader == 2 {
		lane = append(lane, recv(end-1, at(schedule.Out, end-1)))
	}
	for mask := 1; mask < gs.count; mask *= 2 {
		held, peer := me&^(mask-1), gs.first(me^mask)
		theirs := held ^ mask
		lane = append(lane,
			send(peer, span(schedule.Out, gs.first(held), gs.first(held+mask)-gs.first(held))),
			recv(peer, span(schedule.Out, gs.first(theirs), gs.first(theirs+mask)-gs.first(theirs))))
	}
	if end-leader == 2 {
		others(func(sp schedule.Span) { lane = append(lane, send(end-1, sp)) })
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

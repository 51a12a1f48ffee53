package direct

import "github.com/gccl/gccl/schedule"

// ReduceScatterHalving halves the vector at distances p/2, p/4, …, 1, so that block r ends at rank
// r. Sizes that are no power of two are folded: a rank hands its vector to its neighbour and gets
// its block from it.
//
//	cost: p = 2^m: mα + (p−1)/p·Sβ + (p−1)/p·Sγ;
//	      other p: (⌊log₂ p⌋+2)α + Sβ + <7/3·Sγ
//
//	blocks  0 1 2 3
//	r0      k k s s  then  k s . .     k: kept and reduced, s: sent to the partner
//	r1      k k s s        s k . .     distance 2, then distance 1
//	r2      s s k k        . . k s
//	r3      s s k k        . . s k
//
// The far distance comes first, so partial results cover ranks that are no neighbours: for
// operations that commute. Thakur, Rabenseifner & Gropp 2005.
func ReduceScatterHalving(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.ReduceScatter, Rank: rank, Size: size,
		In: size, Out: 1, Early: true, // Not lazy: partial results in scratch are overwritten.
	}
	if size == 1 {
		s.Lanes = []schedule.Lane{{final(copyTo(at(schedule.In, 0), at(schedule.Out, 0)))}}
		return s, nil
	}
	gs := powerGroups(size, 2)
	s.Ahead = gs.first(gs.count / 2)
	me := gs.of(rank)
	leader, end := gs.first(me), gs.first(me+1)
	if rank != leader {
		s.Lanes = []schedule.Lane{{send(leader, span(schedule.In, 0, size)), recv(leader, at(schedule.Out, 0))}}
		return s, nil
	}
	var lane schedule.Lane
	// Scratch chunk i is block base+i: all of them if another rank's vector is folded in, else
	// the half that is kept first.
	base, buf, shift := 0, schedule.In, 0
	blocks := func(lo, hi int) part { return part{gs.first(lo), gs.first(hi) - gs.first(lo)} }
	lo, hi := 0, gs.count
	if end-leader == 2 {
		lane = append(lane, recvReduce(end-1, span(schedule.In, 0, size), span(schedule.Scratch, 0, size)))
		buf = schedule.Scratch
		s.Scratch = blockSizes(0, size)
	} else {
		half := blocks(0, hi/2)
		if me >= hi/2 {
			half = blocks(hi/2, hi)
		}
		base = half.first
		s.Scratch = blockSizes(half.first, half.count)
	}
	for mask := gs.count / 2; mask > 0; mask /= 2 {
		peer, mid := gs.first(me^mask), (lo+hi)/2
		kept, given := blocks(lo, mid), blocks(mid, hi)
		if me&mask != 0 {
			kept, given = given, kept
			lo = mid
		} else {
			hi = mid
		}
		dst := span(schedule.Scratch, kept.first-base, kept.count)
		if mask == 1 && kept.count == 1 {
			dst = at(schedule.Out, 0)
		}
		lane = append(lane,
			send(peer, span(buf, given.first-shift, given.count)),
			recvReduce(peer, span(buf, kept.first-shift, kept.count), dst))
		buf, shift = schedule.Scratch, base
	}
	lane[len(lane)-1].Final = true
	if end-leader == 2 {
		lane = append(lane,
			send(end-1, at(schedule.Scratch, end-1)),
			copyTo(at(schedule.Scratch, leader), at(schedule.Out, 0)))
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// blockSizes is the sizes of scratch chunks that hold the blocks first … first+count−1 of In.
func blockSizes(first, count int) []schedule.Chunk {
	cs := make([]schedule.Chunk, count)
	for i := range cs {
		cs[i] = schedule.Chunk{Buf: schedule.In, Index: first + i}
	}
	return cs
}

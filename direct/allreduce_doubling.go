package direct

import "github.com/gccl/gccl/schedule"

// AllReduceRecursiveDoubling exchanges the whole vector with partners at distances 1, 2, 4, …;
// with radix k, groups of k ranks exchange at distances 1, k, k², … (recursive multiplying). Sizes
// that are no power of k are folded: neighbours hand their vector to a leader and get the result
// from it.
//
//	cost: radix k, p = k^m: mα + m(k−1)·Sβ + m(k−1)·Sγ;
//	      radix 2, other p: (⌊log₂ p⌋+2)α + (⌊log₂ p⌋+1)·Sβ + (⌊log₂ p⌋+1)·Sγ
//
//	      r0    r1    r2    r3
//	1     a⊕b   a⊕b   c⊕d   c⊕d
//	2     ab⊕cd ab⊕cd ab⊕cd ab⊕cd
//
// Both partners put the lower rank's operand on the left, so all ranks evaluate the same
// expression, in rank order, and hold identical bits. Thakur, Rabenseifner & Gropp 2005; recursive
// multiplying: Ruefenacht, Bull & Booth 2017.
func AllReduceRecursiveDoubling(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: 1, Out: 1, Ahead: min(1, size-1), Early: true, Lazy: size == 1, // Out is sent and overwritten in each round.
	}
	in, out := at(schedule.In, 0), at(schedule.Out, 0)
	if size == 1 {
		s.Lanes = []schedule.Lane{{final(copyTo(in, out))}}
		return s, nil
	}
	k := min(radix(shape), size)
	gs := powerGroups(size, k)
	me := gs.of(rank)
	leader, end := gs.first(me), gs.first(me+1)
	if rank != leader {
		s.Lanes = []schedule.Lane{{send(leader, in), recv(leader, out)}}
		return s, nil
	}
	var lane schedule.Lane
	cur, next := in, out
	for p := leader + 1; p < end; p++ {
		lane = append(lane, recvReduce(p, cur, out))
		cur = out
	}
	if k > 2 {
		// A run may not read its own destination in its middle, so rounds alternate.
		s.Scratch = []schedule.Chunk{{Buf: schedule.Out}}
	}
	for d := 1; d < gs.count; d *= k {
		base := me - me/d%k*d
		if k > 2 {
			if next = out; cur == out {
				next = at(schedule.Scratch, 0)
			}
		}
		for i := 1; i < k; i++ {
			lane = append(lane, send(gs.first(base+(me-base+i*d)%(k*d)), cur))
		}
		lane = append(lane, groupFold(gs, base, d, k, me, cur, next)...)
		cur = next
	}
	lane[len(lane)-1].Final = true
	if cur != out {
		lane = append(lane, copyTo(cur, out))
	}
	for p := leader + 1; p < end; p++ {
		lane = append(lane, send(p, out))
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// groupFold is the run that folds the values of groups base, base+d, …, base+(k−1)d in that order
// into next, this rank's own being cur.
func groupFold(gs groups, base, d, k, me int, cur, next schedule.Span) schedule.Lane {
	if k == 2 {
		if me == base {
			return schedule.Lane{recvReduce(gs.first(base+d), cur, next)}
		}
		return schedule.Lane{reduceRecv(gs.first(base), cur, next)}
	}
	var lane schedule.Lane
	for i := range k {
		g := base + i*d
		switch {
		case i == 0 && g == me:
			lane = append(lane, copyTo(cur, next))
		case i == 0:
			lane = append(lane, recv(gs.first(g), next))
		case g == me:
			lane = append(lane, combine(cur, next))
		default:
			lane = append(lane, recvReduce(gs.first(g), next, next))
		}
	}
	return lane
}

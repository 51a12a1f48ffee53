package direct

import "github.com/gccl/gccl/schedule"

// AllReduceHalvingDoubling is Rabenseifner's algorithm: a reduce-scatter by recursive halving of
// the vector at distances 1, 2, 4, …, then an all-gather by recursive doubling back. Sizes that
// are no power of two are folded: neighbours hand their vector to a leader and get the result
// from it.
//
//	cost: p = 2^m: 2mα + 2(p−1)/p·Sβ + (p−1)/p·Sγ;
//	      other p, q = 2^⌊log₂ p⌋: (2⌊log₂ p⌋+2)α + (3−2/q)·Sβ + (2−1/q)·Sγ
//
//	chunks   0 1 2 3
//	r0       k k s s  then  k s . .     k: kept and reduced, s: sent to the partner
//	r1       s s k k        . . k s     distance 1, then distance 2; back the same way,
//	r2       k k s s        s k . .     with finished chunks
//	r3       s s k k        . . s k
//
// Because the near distance comes first, every partial result covers neighbouring ranks and the
// order of ranks is kept. Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005.
func AllReduceHalvingDoubling(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	gs := powerGroups(size, 2)
	n := gs.count
	s := schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: n, Out: n, Ahead: n / 2, Early: true, Lazy: true,
	}
	me := gs.of(rank)
	leader, end := gs.first(me), gs.first(me+1)
	if rank != leader {
		s.Lanes = []schedule.Lane{{send(leader, span(schedule.In, 0, n)), recv(leader, span(schedule.Out, 0, n))}}
		return s, nil
	}
	h := halving{groups: gs, me: me, buf: schedule.In, acc: schedule.Out, peer: gs.first}
	var lane schedule.Lane
	if end-leader == 2 {
		lane = append(lane, recvReduce(end-1, span(schedule.In, 0, n), span(schedule.Out, 0, n)))
		h.buf = schedule.Out
	}
	lane = append(lane, h.reduceScatter()...)
	for i := len(h.trail) - 1; i >= 0; i-- {
		t := h.trail[i]
		lane = append(lane, send(t.peer, t.kept.in(schedule.Out)), recv(t.peer, t.given.in(schedule.Out)))
	}
	if end-leader == 2 {
		lane = append(lane, send(end-1, span(schedule.Out, 0, n)))
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// ReduceScatterGather reduces to the root by the reduce-scatter of [AllReduceHalvingDoubling] and
// a binomial gather: the algorithm for long vectors.
//
//	cost: p = 2^m: 2mα + (3/2−1/p)·Sβ + (p−1)/p·Sγ;
//	      other p, q = 2^⌊log₂ p⌋: (2⌊log₂ p⌋+1)α + (3/2−1/q)·Sβ + (2−1/q)·Sγ
//
// The order of ranks is kept. Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005.
func ReduceScatterGather(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	gs := powerGroups(size, 2)
	n, root := gs.count, gs.of(shape.Root)
	s := schedule.Schedule{
		Collective: schedule.Reduce, Rank: rank, Size: size, Root: shape.Root,
		In: n, Ahead: n / 2, Early: true, // Not lazy: partial results in scratch are overwritten.
	}
	acc := schedule.Scratch
	if rank == shape.Root {
		s.Out, acc = n, schedule.Out
	}
	// The root leads its group, so that the result ends where it is wanted.
	leaderOf := func(g int) int {
		if g == root {
			return shape.Root
		}
		return gs.first(g)
	}
	me := gs.of(rank)
	leader := leaderOf(me)
	if rank != leader {
		s.Lanes = []schedule.Lane{{send(leader, span(schedule.In, 0, n))}}
		return s, nil
	}
	if acc == schedule.Scratch {
		for i := range n {
			s.Scratch = append(s.Scratch, schedule.Chunk{Buf: schedule.In, Index: i})
		}
	}
	h := halving{groups: gs, me: me, buf: schedule.In, acc: acc, peer: leaderOf}
	var lane schedule.Lane
	if gs.len(me) == 2 {
		all, sum := span(schedule.In, 0, n), span(acc, 0, n)
		if other := gs.first(me+1) - 1; other != leader {
			lane = append(lane, recvReduce(other, all, sum))
		} else {
			lane = append(lane, reduceRecv(gs.first(me), all, sum))
		}
		h.buf = acc
	}
	lane = append(lane, h.reduceScatter()...)
	for i := len(h.trail) - 1; i >= 0; i-- {
		t := h.trail[i]
		if (me^root)&t.mask != 0 {
			lane = append(lane, send(t.peer, t.kept.in(acc)))
			break
		}
		lane = append(lane, recv(t.peer, t.given.in(acc)))
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// halving is a reduce-scatter of a power of two of groups, near distance first.
type halving struct {
	groups groups
	me     int           // own group
	buf    schedule.Buf  // where the vector lies at the start
	acc    schedule.Buf  // where partial results go
	peer   func(int) int // leader of a group
	trail  []halved      // what was done, for the way back
}

// halved is one round: the part that the rank kept and the part that it gave to peer.
type halved struct {
	mask, peer  int
	kept, given part
}

type part struct{ first, count int }

func (p part) in(b schedule.Buf) schedule.Span { return span(b, p.first, p.count) }

func (h *halving) reduceScatter() schedule.Lane {
	if h.groups.count == 1 {
		return schedule.Lane{final(copyTo(at(h.buf, 0), at(h.acc, 0)))}
	}
	var lane schedule.Lane
	have := part{0, h.groups.count}
	for mask := 1; mask < h.groups.count; mask *= 2 {
		low, high := part{have.first, have.count / 2}, part{have.first + have.count/2, have.count / 2}
		t := halved{mask: mask, peer: h.peer(h.me ^ mask), kept: low, given: high}
		if h.me&mask != 0 {
			t.kept, t.given = high, low
		}
		lane = append(lane, send(t.peer, t.given.in(h.buf)))
		step := recvReduce(t.peer, t.kept.in(h.buf), t.kept.in(h.acc))
		step.Left = h.me&mask != 0
		lane = append(lane, step)
		h.trail = append(h.trail, t)
		have, h.buf = t.kept, h.acc
	}
	lane[len(lane)-1].Final = true
	return lane
}

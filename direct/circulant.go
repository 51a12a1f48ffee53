package direct

import "github.com/gccl/gccl/schedule"

// ReduceScatterCirculant reduces in ⌈log₂ p⌉ rounds for any p, with no byte and no operation more
// than needed. In its round with s blocks left a rank keeps the ⌈s/2⌉ blocks that begin with its
// own, counted modulo p, and sends the others to the rank at distance ⌈s/2⌉ above, which keeps them.
//
//	cost: ⌈log₂ p⌉α + (p−1)/p·Sβ + (p−1)/p·Sγ
//
//	p = 5   r0: 0 1 2 | 3 4 ─▶ r3     then  0 1 | 2 ─▶ r2     then  0 | 1 ─▶ r1
//	        r1: 1 2 3 | 4 0 ─▶ r4           1 2 | 3 ─▶ r3           1 | 2 ─▶ r2   …
//
// Partial results cover ranks counted cyclically, so the operation must commute. Träff, "Optimal,
// Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv:2410.14234.
func ReduceScatterCirculant(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.ReduceScatter, Rank: rank, Size: size,
		In: size, Out: 1, Ahead: size / 2,
		Early: true, // Not lazy: partial results in scratch are overwritten.
	}
	in, out := schedule.In, at(schedule.Out, 0)
	if size == 1 {
		s.Lanes = []schedule.Lane{{final(copyTo(at(in, 0), out))}}
		return s, nil
	}
	// Scratch chunk j is block r+j, for as long as it is kept.
	half := (size + 1) / 2
	for j := range half {
		s.Scratch = append(s.Scratch, schedule.Chunk{Buf: in, Index: (rank + j) % size})
	}
	to, from := (rank+half)%size, (rank-half+size)%size
	var lane schedule.Lane
	cyclic(in, rank+half, size-half, size, func(sp schedule.Span) {
		lane = append(lane, send(to, sp))
	})
	if size == 2 {
		lane = append(lane, final(recvReduce(from, at(in, rank), out)))
		s.Lanes = []schedule.Lane{lane}
		return s, nil
	}
	j := 0
	cyclic(in, rank, size-half, size, func(sp schedule.Span) {
		lane = append(lane, recvReduce(from, sp, span(schedule.Scratch, j, sp.Count)))
		j += sp.Count
	})
	if j < half { // the middle block of an odd number has got nothing yet
		lane = append(lane, copyTo(at(in, (rank+j)%size), at(schedule.Scratch, j)))
	}
	for have := half; have > 1; have = half {
		half = (have + 1) / 2
		to, from = (rank+half)%size, (rank-half+size)%size
		kept := span(schedule.Scratch, 0, have-half)
		lane = append(lane, send(to, span(schedule.Scratch, half, have-half)))
		if have == 2 {
			lane = append(lane, final(recvReduce(from, kept, out)))
		} else {
			lane = append(lane, recvReduce(from, kept, kept))
		}
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// AllReduceCirculant is [ReduceScatterCirculant] and, the same way back, an all-gather: every rank
// ends with the same bits, after 2⌈log₂ p⌉ rounds at the least possible traffic for any p.
//
//	cost: 2⌈log₂ p⌉α + 2(p−1)/p·Sβ + (p−1)/p·Sγ
func AllReduceCirculant(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: size, Out: size, Ahead: size / 2, Early: true, Lazy: true,
	}
	if size == 1 {
		s.Lanes = []schedule.Lane{{final(copyTo(at(schedule.In, 0), at(schedule.Out, 0)))}}
		return s, nil
	}
	var lane schedule.Lane
	buf := schedule.In
	var halves []int // ⌈s/2⌉ of every round, with size in front
	for have := size; have > 1; have = (have + 1) / 2 {
		halves = append(halves, have)
		half := (have + 1) / 2
		cyclic(buf, rank+half, have-half, size, func(sp schedule.Span) {
			lane = append(lane, send((rank+half)%size, sp))
		})
		cyclic(buf, rank, have-half, size, func(sp schedule.Span) {
			step := recvReduce((rank-half+size)%size, sp, span(schedule.Out, sp.First, sp.Count))
			step.Final = have == 2
			lane = append(lane, step)
		})
		if have == size && size%2 == 1 { // the middle block has got nothing yet
			mid := (rank + half - 1) % size
			lane = append(lane, copyTo(at(schedule.In, mid), at(schedule.Out, mid)))
		}
		buf = schedule.Out
	}
	for i := len(halves) - 1; i >= 0; i-- {
		have := halves[i]
		half := (have + 1) / 2
		cyclic(schedule.Out, rank, have-half, size, func(sp schedule.Span) {
			lane = append(lane, send((rank-half+size)%size, sp))
		})
		cyclic(schedule.Out, rank+half, have-half, size, func(sp schedule.Span) {
			lane = append(lane, recv((rank+half)%size, sp))
		})
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

package tree

import "github.com/gccl/gccl/schedule"

// Broadcast sends the root's data down a k-nomial tree, k the radix.
//
//	cost: radix 2, streamed: ⌊log₂ p⌋α + ⌈log₂ p⌉·Sβ
//
//	root ─▶ 4 ─▶ 6 ─▶ 7     8 ranks: the largest subtree first
//	     ─▶ 2 ─▶ 3 · ─▶ 5
//	     ─▶ 1
func Broadcast(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	v, m := (rank-shape.Root+size)%size, pieces(shape)
	n := knomial(v, size, radix(shape)).renamed(rotated(shape.Root, size))
	s := schedule.Schedule{
		Collective: schedule.Broadcast, Rank: rank, Size: size, Root: shape.Root,
		Out: m, Early: true, Lazy: true,
	}
	lane := n.down(0, m, schedule.In, never)
	if v == 0 {
		s.In = m
		lane = append(lane, copyTo(span(schedule.In, 0, m), span(schedule.Out, 0, m)))
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// Reduce reduces to the root along a k-nomial tree, k the radix. With root 0 operands keep the
// order of the ranks, otherwise their cyclic order from the root on.
//
//	cost: radix 2, streamed: ⌊log₂ p⌋α + ⌈log₂ p⌉·Sβ + ⌈log₂ p⌉·Sγ, at the root
//
//	7 ─▶ 6 ─▶ 4 ─▶ root     8 ranks; a rank adds what comes from 1, 2, 4 above, in this order
func Reduce(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	v, m := (rank-shape.Root+size)%size, pieces(shape)
	n := knomial(v, size, radix(shape)).renamed(rotated(shape.Root, size))
	s := schedule.Schedule{
		Collective: schedule.Reduce, Rank: rank, Size: size, Root: shape.Root,
		In: m, Early: true, Lazy: size <= 2, // Partial results in scratch are overwritten in the next window.
	}
	s.Lanes = []schedule.Lane{n.up(0, m, sums(&s, &n, 0, m))}
	return s, nil
}

// Gather collects blocks along a k-nomial tree, k the radix: a rank sends the blocks of its whole
// subtree in one message. Blocks must be equally long.
//
//	cost: radix 2: ⌊log₂ p⌋α + (p−1)/p·Sβ, at the root
func Gather(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	b := newBlocks(rank, size, shape, true)
	s := schedule.Schedule{
		Collective: schedule.Gather, Rank: rank, Size: size, Root: shape.Root,
		In: 1, Early: size <= 2, Lazy: size <= 2, // Scratch is used again in the next window.
	}
	if b.v == 0 {
		s.Out = size
	}
	var lane schedule.Lane
	if b.count > 1 || b.v == 0 {
		b.spans(b.v, 1, func(sp schedule.Span) { lane = append(lane, copyTo(at(schedule.In, 0), sp)) })
	}
	for _, c := range b.right {
		b.spans(c, b.extent(c), func(sp schedule.Span) { lane = append(lane, recv(b.rank(c), sp)) })
	}
	if b.v > 0 {
		b.spans(b.v, b.count, func(sp schedule.Span) { lane = append(lane, send(b.rank(b.parent), sp)) })
	}
	s.Scratch = b.scratch()
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// Scatter deals blocks along a k-nomial tree, k the radix: a rank receives the blocks of its whole
// subtree in one message. Blocks must be equally long.
//
//	cost: radix 2: ⌊log₂ p⌋α + (p−1)/p·Sβ
func Scatter(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	b := newBlocks(rank, size, shape, false)
	s := schedule.Schedule{
		Collective: schedule.Scatter, Rank: rank, Size: size, Root: shape.Root,
		Out: 1, Early: size <= 2, Lazy: size <= 2, // Scratch is used again in the next window.
	}
	if b.v == 0 {
		s.In = size
	}
	var lane schedule.Lane
	if b.v > 0 {
		b.spans(b.v, b.count, func(sp schedule.Span) { lane = append(lane, recv(b.rank(b.parent), sp)) })
	}
	for i := len(b.right) - 1; i >= 0; i-- {
		c := b.right[i]
		b.spans(c, b.extent(c), func(sp schedule.Span) { lane = append(lane, send(b.rank(c), sp)) })
	}
	if b.count > 1 || b.v == 0 {
		b.spans(b.v, 1, func(sp schedule.Span) { lane = append(lane, copyTo(sp, at(schedule.Out, 0))) })
	}
	s.Scratch = b.scratch()
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// sums gives a rank of a Reduce memory for the sums of the chunks [first, first+count): Out at the
// root, scratch at an inner rank.
func sums(s *schedule.Schedule, n *node, first, count int) func(i int) schedule.Span {
	if n.parent < 0 {
		s.Out = s.In
		return func(i int) schedule.Span { return at(schedule.Out, i) }
	}
	base := len(s.Scratch)
	if n.degree() > 0 {
		for i := range count {
			s.Scratch = append(s.Scratch, schedule.Chunk{Buf: schedule.In, Index: first + i})
		}
	}
	return func(i int) schedule.Span { return at(schedule.Scratch, base+i-first) }
}

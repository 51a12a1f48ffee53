package tree

import "github.com/gccl/gccl/schedule"

// blocks is where one rank of a k-nomial Gather or Scatter keeps the blocks of its subtree: the
// root in the buffer that holds everybody's, in the order of the ranks, an inner rank in scratch
// memory, in the order of the tree, a leaf in the buffer that holds its own.
type blocks struct {
	node
	v, count int // own number, counted from the root; ranks in the subtree
	size, k  int
	root     int
	gather   bool
}

func newBlocks(rank, size int, shape schedule.Shape, gather bool) blocks {
	k, v := radix(shape), (rank-shape.Root+size)%size
	return blocks{
		node: knomial(v, size, k), v: v, count: extent(v, size, k),
		size: size, k: k, root: shape.Root, gather: gather,
	}
}

func (b *blocks) rank(v int) int   { return (v + b.root) % b.size }
func (b *blocks) extent(v int) int { return extent(v, b.size, b.k) }

// spans calls f with where the blocks of the nodes v … v+count−1 are. They are cut where the ranks
// wrap around, everywhere alike, so that messages pair.
func (b *blocks) spans(v, count int, f func(schedule.Span)) {
	first := min(count, b.size-b.rank(v))
	f(b.at(v, first))
	if first < count {
		f(b.at(v+first, count-first))
	}
}

func (b *blocks) at(v, count int) schedule.Span {
	all, own := schedule.In, schedule.Out
	if b.gather {
		all, own = own, all
	}
	switch {
	case b.v == 0:
		return span(all, b.rank(v), count)
	case b.count == 1:
		return span(own, 0, 1)
	}
	return span(schedule.Scratch, v-b.v, count)
}

// scratch is the sizes of the scratch memory.
func (b *blocks) scratch() []schedule.Chunk {
	if b.v == 0 || b.count == 1 {
		return nil
	}
	cs := make([]schedule.Chunk, b.count)
	for i := range cs {
		if cs[i].Buf = schedule.Out; b.gather {
			cs[i].Buf = schedule.In
		}
	}
	return cs
}

package direct

import "github.com/gccl/gccl/schedule"

// AllToAllBruck exchanges blocks in ⌈log_k p⌉ rounds, k the radix: the block for the rank at
// distance d travels by the digits of d, in company with all blocks that have the digit of that
// round in common. Fewer messages, more bytes: for small blocks. Blocks must be equally long.
//
//	cost: radix k: ⌈log_k p⌉α + ≤(1−1/k)⌈log_k p⌉·Sβ
//	      (k−1 messages in each of the rounds)
//
//	p = 8:  distance 5 = 101b travels 1 in round 0, nothing in round 1, 4 in round 2
//
// Bruck, Ho, Kipnis, Upfal & Weathersby, 1997. The first rotation of the paper is replaced by
// reading blocks where they lie, the last one by writing them where they belong. Each message is
// packed in scratch memory, so that a round costs one message for each digit value.
func AllToAllBruck(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	b := bruckAllToAll{rank: rank, size: size, where: make([]schedule.Span, size)}
	for d := range size {
		b.where[d] = at(schedule.In, (rank+d)%size)
	}
	k := radix(shape)
	for w := 1; w < size; w *= k {
		b.round(w, k)
	}
	// What is now here for distance d came from the rank d below.
	for d := range size {
		b.lane = append(b.lane, copyTo(b.where[d], at(schedule.Out, (rank-d+size)%size)))
	}
	return schedule.Schedule{
		Collective: schedule.AllToAll, Rank: rank, Size: size,
		In: size, Out: size, Scratch: b.scratch, Lanes: []schedule.Lane{b.lane},
		Ahead: b.most,
	}, nil
}

// bruckAllToAll builds the schedule; where[d] is where the block that still has to travel the
// higher digits of d lies.
type bruckAllToAll struct {
	rank, size int
	where      []schedule.Span
	scratch    []schedule.Chunk
	lane       schedule.Lane
	most       int // blocks in one message
}

// round moves every block as far as the digit of weight w of its distance says.
func (b *bruckAllToAll) round(w, k int) {
	for digit := 1; digit < k && digit*w < b.size; digit++ {
		ds := b.with(w, k, digit)
		pack := b.alloc(len(ds))
		for i, d := range ds {
			b.lane = append(b.lane, copyTo(b.where[d], at(schedule.Scratch, pack.First+i)))
		}
		b.lane = append(b.lane, send((b.rank+digit*w)%b.size, pack))
		b.most = max(b.most, len(ds))
	}
	for digit := 1; digit < k && digit*w < b.size; digit++ {
		ds := b.with(w, k, digit)
		got := b.alloc(len(ds))
		b.lane = append(b.lane, recv((b.rank-digit*w+b.size)%b.size, got))
		for i, d := range ds {
			b.where[d] = at(schedule.Scratch, got.First+i)
		}
	}
}

// with lists the distances that have a digit of weight w.
func (b *bruckAllToAll) with(w, k, digit int) []int {
	var ds []int
	for d := range b.size {
		if d/w%k == digit {
			ds = append(ds, d)
		}
	}
	return ds
}

func (b *bruckAllToAll) alloc(n int) schedule.Span {
	s := span(schedule.Scratch, len(b.scratch), n)
	for range n {
		b.scratch = append(b.scratch, schedule.Chunk{Buf: schedule.In})
	}
	return s
}

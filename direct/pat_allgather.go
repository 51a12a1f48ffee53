package direct

import "github.com/gccl/gccl/schedule"

// AllGatherPAT sends every block down its own binomial tree, far distances first, with messages of
// at most Shape.Aggregate blocks; see the file pat.go. Blocks must be equally long.
//
//	cost: aggregate a: (⌈log₂ a⌉+p/a−1)α + (p−1)/p·Sβ
//	scratch: a·(1+⌈log₂ p/a⌉) blocks; none for aggregate 1
//
// It sends far what is small and near what is large, other than Bruck's algorithm.
func AllGatherPAT(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	p := newPAT(rank, size, shape.Aggregate)
	p.lane = schedule.Lane{copyTo(at(schedule.In, 0), at(schedule.Out, rank))}
	direct := p.groups == 1 // every message is one block: nothing needs packing
	part := func(l, i, count int) schedule.Span {
		if direct {
			return at(schedule.Out, p.block(l))
		}
		return span(schedule.Scratch, p.region[l]+i, count)
	}
	unpack := func(l int, hs []int) {
		for _, h := range hs {
			if !direct {
				p.lane = append(p.lane, copyTo(part(l, p.at(h), 1), at(schedule.Out, p.block(h*p.m+l))))
			}
		}
	}
	if !direct {
		p.region[0] = p.take()
		p.lane = append(p.lane, copyTo(at(schedule.In, 0), part(0, p.at(0), 1)))
	}
	for d := ceilPower(p.groups) / 2; d > 0; d /= 2 {
		hs := p.round(d)
		source := func(h int) int { return p.at(h - d) }
		runs(hs, source, p.at, func(i, _, n int) {
			p.lane = append(p.lane, send(p.above(d*p.m), part(0, i, n)))
		})
		runs(hs, source, p.at, func(_, i, n int) {
			p.lane = append(p.lane, recv(p.below(d*p.m), part(0, i, n)))
		})
		unpack(0, hs)
	}
	for l := 1; l < p.m; l++ {
		hs, d := p.members(l), l&-l
		if len(hs) == 0 {
			break
		}
		if !direct {
			p.region[l] = p.take()
		}
		runs(hs, p.at, p.at, func(i, _, n int) {
			p.lane = append(p.lane, send(p.above(d), part(l-d, i, n)))
		})
		runs(hs, p.at, p.at, func(_, i, n int) {
			p.lane = append(p.lane, recv(p.below(d), part(l, i, n)))
		})
		unpack(l, hs)
		if d == 1 {
			p.release(l) // a leaf
		}
		// The last child of its parent l−d, whose lowest bit is twice as high.
		if parent := l - d; parent&-parent == 2*d {
			p.release(parent)
		}
	}
	return schedule.Schedule{
		Collective: schedule.AllGather, Rank: rank, Size: size,
		In: 1, Out: size, Scratch: p.chunks(schedule.Out), Lanes: []schedule.Lane{p.lane},
		Ahead: p.most(), Early: direct, Lazy: direct, // Otherwise scratch is used again.
	}, nil
}

// ceilPower is the least power of two that is not below n.
func ceilPower(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

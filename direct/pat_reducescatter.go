package direct

import "github.com/gccl/gccl/schedule"

// ReduceScatterPAT reduces every block along its own binomial tree, leaves first, with messages of
// at most Shape.Aggregate blocks; see the file pat.go. Blocks must be equally long.
//
//	cost: aggregate a: (p/a−1+⌈log₂ a⌉)α + (p−1)/p·Sβ + (p−1)/p·Sγ
//	scratch: a·(1+⌈log₂ p/a⌉) blocks
//
// Partial results cover ranks counted cyclically, so the operation must commute.
func ReduceScatterPAT(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	p := newPAT(rank, size, shape.Aggregate)
	if size == 1 {
		p.lane = schedule.Lane{copyTo(at(schedule.In, 0), at(schedule.Out, 0))}
	}
	for l := p.m - 1; l > 0; l-- {
		hs, d := p.members(l), l&-l
		if len(hs) == 0 {
			continue
		}
		p.open(l)
		p.open(l - d)
		runs(hs, p.at, p.at, func(i, _, n int) {
			p.lane = append(p.lane, send(p.below(d), p.part(l, i, n)))
		})
		runs(hs, p.at, p.at, func(_, i, n int) { p.accumulate(l-d, d, i, n) })
		p.release(l)
	}
	p.open(0)
	for d := 1; d < p.groups; d *= 2 {
		hs := p.round(d)
		target := func(h int) int { return p.at(h - d) }
		runs(hs, p.at, target, func(i, _, n int) {
			p.lane = append(p.lane, send(p.below(d*p.m), p.part(0, i, n)))
		})
		runs(hs, p.at, target, func(_, i, n int) { p.accumulate(0, d*p.m, i, n) })
	}
	last := &p.lane[len(p.lane)-1]
	last.Dst, last.Final = schedule.At(schedule.Out, 0), true
	return schedule.Schedule{
		Collective: schedule.ReduceScatter, Rank: rank, Size: size,
		In: size, Out: 1, Scratch: p.chunks(schedule.In), Lanes: []schedule.Lane{p.lane},
		Ahead: p.most(), Early: true, // Not lazy: partial results make room for others when they are sent.
	}, nil
}

// open makes the partial results for l, which begin as this rank's contributions. With one group
// nothing needs packing, and they stay in In until something is added.
func (p *pat) open(l int) {
	if p.groups == 1 || p.region[l] >= 0 {
		return
	}
	p.region[l] = p.take()
	for _, h := range p.members(l) {
		p.lane = append(p.lane, copyTo(at(schedule.In, p.block(h*p.m+l)), p.part(l, p.at(h), 1)))
	}
}

// part is count of the partial results for l, from place i on.
func (p *pat) part(l, i, count int) schedule.Span {
	if p.region[l] < 0 {
		return at(schedule.In, p.block(l))
	}
	return span(schedule.Scratch, p.region[l]+i, count)
}

// accumulate adds what comes from distance d to count of the partial results for l.
func (p *pat) accumulate(l, d, i, count int) {
	src := p.part(l, i, count)
	if p.region[l] < 0 {
		p.region[l] = p.take()
	}
	p.lane = append(p.lane, recvReduce(p.above(d), src, p.part(l, i, count)))
}

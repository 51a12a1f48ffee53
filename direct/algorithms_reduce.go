package direct

import "github.com/gccl/gccl/schedule"

func allReduces() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.AllReduceOneShot", Collective: schedule.AllReduce, Make: AllReduceOneShot,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "α + (p−1)·Sβ + (p−1)·Sγ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), p-1, p-1, 1) }),
		},
		{
			Name: "direct.AllReduceTwoShot", Collective: schedule.AllReduce, Make: AllReduceTwoShot,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "2α + 2(p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(2*min(1, p-1), 2*(p-1), p-1, p) }),
		},
		{
			Name: "direct.AllReduceRecursiveDoubling", Collective: schedule.AllReduce, Make: AllReduceRecursiveDoubling,
			Ordered: true, InPlace: true, Supports: anySize,
			Formula: "radix k, p = k^m: mα + m(k−1)·Sβ + m(k−1)·Sγ; radix 2, other p: (⌊log₂ p⌋+2)α + (⌊log₂ p⌋+1)·Sβ + (⌊log₂ p⌋+1)·Sγ",
			Cost:    doublingCost,
		},
		{
			Name: "direct.AllReduceHalvingDoubling", Collective: schedule.AllReduce, Make: AllReduceHalvingDoubling,
			Ordered: true, InPlace: true, Supports: anySize,
			Formula: "p = 2^m: 2mα + 2(p−1)/p·Sβ + (p−1)/p·Sγ; other p, q = 2^⌊log₂ p⌋: (2⌊log₂ p⌋+2)α + (3−2/q)·Sβ + (2−1/q)·Sγ",
			Cost: perRank(func(p int) schedule.Cost {
				m, n := floorLog2(p), powerGroups(p, 2).count
				if n < p {
					return cost(2*m+2, 3*n-2, 2*n-1, n)
				}
				return cost(2*m, 2*(n-1), n-1, n)
			}),
		},
		{
			Name: "direct.AllReduceCirculant", Collective: schedule.AllReduce, Make: AllReduceCirculant,
			InPlace: true, Supports: anySize,
			Formula: "2⌈log₂ p⌉α + 2(p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(2*ceilLog2(p), 2*(p-1), p-1, p) }),
		},
	}
}

func rooted() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.BroadcastDirect", Collective: schedule.Broadcast, Make: BroadcastDirect,
			InPlace: true, Supports: anySize,
			Formula: "α + (p−1)·Sβ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), p-1, 0, 1) }),
		},
		{
			Name: "direct.BroadcastScatterAllGather", Collective: schedule.Broadcast, Make: BroadcastScatterAllGather,
			InPlace: true, Supports: anySize,
			Formula: "2⌈log₂ p⌉α + 2(p−1)/p·Sβ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(2*ceilLog2(p), 2*(p-1), 0, p) }),
		},
		{
			Name: "direct.ReduceDirect", Collective: schedule.Reduce, Make: ReduceDirect,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "α + (p−1)·Sβ + (p−1)·Sγ, at the root",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), min(1, p-1), p-1, 1) }),
		},
		{
			Name: "direct.ReduceScatterGather", Collective: schedule.Reduce, Make: ReduceScatterGather,
			Ordered: true, InPlace: true, Supports: anySize,
			Formula: "p = 2^m: 2mα + (3/2−1/p)·Sβ + (p−1)/p·Sγ; other p, q = 2^⌊log₂ p⌋: (2⌊log₂ p⌋+1)α + (3/2−1/q)·Sβ + (2−1/q)·Sγ",
			Cost:    perRank(reduceGatherCost),
		},
		{
			Name: "direct.GatherDirect", Collective: schedule.Gather, Make: GatherDirect,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "α + (p−1)/p·Sβ, at the root",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), min(1, p-1), 0, p) }),
		},
		{
			Name: "direct.ScatterDirect", Collective: schedule.Scatter, Make: ScatterDirect,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "α + (p−1)/p·Sβ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), p-1, 0, p) }),
		},
	}
}

// doublingCost is the cost of AllReduceRecursiveDoubling.
func doublingCost(p int, shape schedule.Shape) schedule.Cost {
	if p == 1 {
		return schedule.Cost{}
	}
	k := min(radix(shape), p)
	gs := powerGroups(p, k)
	rounds := ceilLog(gs.count, k)
	c := cost(rounds, rounds*(k-1), rounds*(k-1), 1)
	if extra := gs.most() - 1; extra > 0 {
		c.Steps += 2
		c.Sent += float64(extra)
		c.Reduced += float64(extra)
	}
	return c
}

// reduceGatherCost is the cost of ReduceScatterGather.
func reduceGatherCost(p int) schedule.Cost {
	m, n := floorLog2(p), powerGroups(p, 2).count
	switch {
	case p == 1:
		return schedule.Cost{}
	case n < p:
		return cost(2*m+1, n-1+n/2, 2*n-1, n)
	}
	return cost(2*m, n-1+n/2, n-1, n)
}

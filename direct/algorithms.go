package direct

import "github.com/gccl/gccl/schedule"

// Algorithms lists the package's algorithms.
func Algorithms() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.AllReduceOneShot", Collective: schedule.AllReduce, Make: AllReduceOneShot,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)·Sβ + (p−1)·Sγ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: p - 1, Reduced: p - 1} }),
		},
		{
			Name: "direct.AllReduceTwoShot", Collective: schedule.AllReduce, Make: AllReduceTwoShot,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "2(p−1)α + 2(p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: 2, Sent: 2 * (p - 1) / p, Reduced: (p - 1) / p}
			}),
		},
		{
			Name: "direct.ReduceScatterDirect", Collective: schedule.ReduceScatter, Make: ReduceScatterDirect,
			Ordered: true, Canonical: true, InPlace: true, Uneven: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: 1, Sent: (p - 1) / p, Reduced: (p - 1) / p}
			}),
		},
		{
			Name: "direct.AllGatherDirect", Collective: schedule.AllGather, Make: AllGatherDirect,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)/p·Sβ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: (p - 1) / p} }),
		},
		{
			Name: "direct.BroadcastDirect", Collective: schedule.Broadcast, Make: BroadcastDirect,
			InPlace: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)·Sβ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: p - 1} }),
		},
		{
			Name: "direct.ReduceDirect", Collective: schedule.Reduce, Make: ReduceDirect,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)·Sβ + (p−1)·Sγ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: 1, Reduced: p - 1} }),
		},
		{
			Name: "direct.GatherDirect", Collective: schedule.Gather, Make: GatherDirect,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)/p·Sβ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: 1 / p} }),
		},
		{
			Name: "direct.ScatterDirect", Collective: schedule.Scatter, Make: ScatterDirect,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)/p·Sβ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: (p - 1) / p} }),
		},
		{
			Name: "direct.AllToAllPairwise", Collective: schedule.AllToAll, Make: AllToAllPairwise,
			Uneven: true, Supports: anySize,
			Formula: "(p−1)α + (p−1)/p·Sβ",
			Cost:    cost(func(p float64) schedule.Cost { return schedule.Cost{Steps: 1, Sent: (p - 1) / p} }),
		},
	}
}

// cost makes a Cost function of a formula in p that holds for p ≥ 2; a single rank pays nothing.
func cost(f func(p float64) schedule.Cost) func(int, schedule.Shape) schedule.Cost {
	return func(size int, _ schedule.Shape) schedule.Cost {
		if size == 1 {
			return schedule.Cost{}
		}
		return f(float64(size))
	}
}

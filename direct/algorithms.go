package direct

import (
	"math/bits"
	"slices"

	"github.com/gccl/gccl/schedule"
)

// Algorithms lists the package's algorithms.
func Algorithms() []schedule.Info {
	return slices.Concat(allReduces(), reduceScatters(), allGathers(), rooted(), allToAlls(), scans(), twoLevels())
}

func reduceScatters() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.ReduceScatterDirect", Collective: schedule.ReduceScatter, Make: ReduceScatterDirect,
			Ordered: true, Canonical: true, InPlace: true, Uneven: true, Supports: anySize,
			Formula: "α + (p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), p-1, p-1, p) }),
		},
		{
			Name: "direct.ReduceScatterHalving", Collective: schedule.ReduceScatter, Make: ReduceScatterHalving,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "p = 2^m: mα + (p−1)/p·Sβ + (p−1)/p·Sγ; other p: (⌊log₂ p⌋+2)α + Sβ + <7/3·Sγ",
			Cost: perRank(func(p int) schedule.Cost {
				gs := powerGroups(p, 2)
				m := floorLog2(p)
				if gs.count == p {
					return cost(m, p-1, p-1, p)
				}
				kept := 0
				for n := gs.count / 2; n > 0; n /= 2 {
					kept += gs.first(n)
				}
				return cost(m+2, p, p+kept, p)
			}),
		},
		{
			Name: "direct.ReduceScatterCirculant", Collective: schedule.ReduceScatter, Make: ReduceScatterCirculant,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "⌈log₂ p⌉α + (p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(ceilLog2(p), p-1, p-1, p) }),
		},
		{
			Name: "direct.ReduceScatterPAT", Collective: schedule.ReduceScatter, Make: ReduceScatterPAT,
			InPlace: true, Supports: anySize,
			Formula: "aggregate a: (p/a−1+⌈log₂ a⌉)α + (p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				return cost(patSteps(p, shape), p-1, p-1, p)
			},
		},
	}
}

func allGathers() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.AllGatherDirect", Collective: schedule.AllGather, Make: AllGatherDirect,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "α + (p−1)/p·Sβ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), p-1, 0, p) }),
		},
		{
			Name: "direct.AllGatherBruck", Collective: schedule.AllGather, Make: AllGatherBruck,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "radix k: ⌈log_k p⌉α + (p−1)/p·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				return cost(ceilLog(p, radix(shape)), p-1, 0, p)
			},
		},
		{
			Name: "direct.AllGatherDoubling", Collective: schedule.AllGather, Make: AllGatherDoubling,
			InPlace: true, Uneven: true, Supports: anySize,
			Formula: "p = 2^m: mα + (p−1)/p·Sβ; other p: (⌊log₂ p⌋+2)α + <7/3·Sβ",
			Cost: perRank(func(p int) schedule.Cost {
				gs := powerGroups(p, 2)
				m := floorLog2(p)
				if gs.count == p {
					return cost(m, p-1, 0, p)
				}
				sent := p - 1
				for n := 1; n < gs.count; n *= 2 {
					sent += gs.first(n)
				}
				return cost(m+2, sent, 0, p)
			}),
		},
		{
			Name: "direct.AllGatherPAT", Collective: schedule.AllGather, Make: AllGatherPAT,
			InPlace: true, Supports: anySize,
			Formula: "aggregate a: (⌈log₂ a⌉+p/a−1)α + (p−1)/p·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				return cost(patSteps(p, shape), p-1, 0, p)
			},
		},
	}
}

func allToAlls() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.AllToAllPairwise", Collective: schedule.AllToAll, Make: AllToAllPairwise,
			Uneven: true, Supports: anySize,
			Formula: "⌈(p−1)/2⌉α + (p−1)/p·Sβ",
			Cost: perRank(func(p int) schedule.Cost {
				return cost((p-1+exchanges-1)/exchanges, p-1, 0, p)
			}),
		},
		{
			Name: "direct.AllToAllDirect", Collective: schedule.AllToAll, Make: AllToAllDirect,
			Short: true, Supports: anySize,
			Formula: "α + (p−1)/p·Sβ",
			Cost:    perRank(func(p int) schedule.Cost { return cost(min(1, p-1), p-1, 0, p) }),
		},
		{
			Name: "direct.AllToAllBruck", Collective: schedule.AllToAll, Make: AllToAllBruck,
			InPlace: true, Supports: anySize,
			Formula: "radix k: ⌈log_k p⌉α + ≤(1−1/k)⌈log_k p⌉·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				k, sent := radix(shape), 0
				for d := 1; d < p; d++ {
					for rest := d; rest > 0; rest /= k {
						if rest%k != 0 {
							sent++
						}
					}
				}
				return cost(ceilLog(p, k), sent, 0, p)
			},
		},
	}
}

func scans() []schedule.Info {
	chain := func(reducing func(p int) int) func(int, schedule.Shape) schedule.Cost {
		return func(p int, _ schedule.Shape) schedule.Cost {
			if p == 1 {
				return schedule.Cost{}
			}
			return cost(p-1, 1, reducing(p), 1)
		}
	}
	return []schedule.Info{
		{
			Name: "direct.ScanLinear", Collective: schedule.Scan, Make: ScanLinear,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "streamed: (p−1)α + Sβ + Sγ",
			Cost:    chain(func(int) int { return 1 }),
		},
		{
			Name: "direct.ScanDoubling", Collective: schedule.Scan, Make: ScanDoubling,
			Ordered: true, InPlace: true, Supports: anySize,
			Formula: "⌈log₂ p⌉α + ⌈log₂ p⌉·Sβ + ⌈log₂ p⌉·Sγ",
			Cost: perRank(func(p int) schedule.Cost {
				return cost(ceilLog2(p), ceilLog2(p), ceilLog2(p), 1)
			}),
		},
		{
			Name: "direct.ExscanLinear", Collective: schedule.Exscan, Make: ExscanLinear,
			Ordered: true, Canonical: true, InPlace: true, Supports: anySize,
			Formula: "streamed: (p−1)α + Sβ + ≤Sγ",
			Cost:    chain(func(p int) int { return min(1, p-2) }),
		},
		{
			Name: "direct.ExscanDoubling", Collective: schedule.Exscan, Make: ExscanDoubling,
			Ordered: true, InPlace: true, Supports: anySize,
			Formula: "⌈log₂ p⌉α + ⌈log₂ p⌉·Sβ + <2⌈log₂ p⌉·Sγ",
			Cost: perRank(func(p int) schedule.Cost {
				most := 0
				for r := 1; r < p; r++ {
					n := floorLog2(r) // rounds with a prefix to add to, and those …
					for d := 1; d <= r && r+2*d < p; d *= 2 {
						n++ // … after which the sum goes on
					}
					most = max(most, n)
				}
				return cost(ceilLog2(p), ceilLog2(p), most, 1)
			}),
		},
	}
}

// cost is a Cost from numbers of parts that make up S.
func cost(steps, sent, reduced, parts int) schedule.Cost {
	return schedule.Cost{
		Steps:   steps,
		Sent:    float64(sent) / float64(parts),
		Reduced: float64(reduced) / float64(parts),
	}
}

// perRank makes a Cost function of a formula in p.
func perRank(f func(p int) schedule.Cost) func(int, schedule.Shape) schedule.Cost {
	return func(size int, _ schedule.Shape) schedule.Cost { return f(size) }
}

// ceilLog2 is the least m with 2^m ≥ n ≥ 1.
func ceilLog2(n int) int { return bits.Len(uint(n - 1)) }

// floorLog2 is the greatest m with 2^m ≤ n, n ≥ 1.
func floorLog2(n int) int { return bits.Len(uint(n)) - 1 }

// ceilLog is the least m with k^m ≥ n.
func ceilLog(n, k int) int {
	m := 0
	for w := 1; w < n; w *= k {
		m++
	}
	return m
}

func patSteps(p int, shape schedule.Shape) int {
	t := newPAT(0, p, shape.Aggregate)
	return min(t.m, p) - 1 + ceilLog2(t.groups)
}

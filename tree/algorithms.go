package tree

import "github.com/gccl/gccl/schedule"

// Algorithms lists the package's algorithms.
func Algorithms() []schedule.Info {
	return []schedule.Info{
		{
			Name: "tree.AllReduce", Collective: schedule.AllReduce, Make: AllReduce,
			Ordered: true, InPlace: true, Supports: anySize,
			Formula: "radix 2, streamed: 2⌊log₂ p⌋α + ⌈log₂ p⌉·Sβ + ⌈log₂ p⌉·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				k, most := radix(shape), 0
				for v := range p {
					n := knomial(v, p, k)
					most = max(most, n.degree()+min(v, 1))
				}
				return costOf(2*knomialDepth(p, k), most, rootDegree(p, k), 1)
			},
		},
		{
			Name: "tree.AllReduceDouble", Collective: schedule.AllReduce, Make: AllReduceDouble,
			InPlace: true, Supports: anySize,
			Formula: "streamed: ≤2⌈log₂ p⌉α + ≤2Sβ + ≤Sγ",
			Cost: func(p int, _ schedule.Shape) schedule.Cost {
				depth, degree, sent := doubleShape(p)
				return costOf(2*depth, sent, degree, 2)
			},
		},
		{
			Name: "tree.Broadcast", Collective: schedule.Broadcast, Make: Broadcast,
			InPlace: true, Supports: anySize,
			Formula: "radix 2, streamed: ⌊log₂ p⌋α + ⌈log₂ p⌉·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				return costOf(knomialDepth(p, radix(shape)), rootDegree(p, radix(shape)), 0, 1)
			},
		},
		{
			Name: "tree.BroadcastDouble", Collective: schedule.Broadcast, Make: BroadcastDouble,
			InPlace: true, Supports: anySize,
			Formula: "streamed: ≤⌈log₂ p⌉α + ≤Sβ",
			Cost: func(p int, _ schedule.Shape) schedule.Cost {
				depth, degree, _ := doubleShape(p)
				return costOf(depth, degree, 0, 2)
			},
		},
		{
			Name: "tree.Reduce", Collective: schedule.Reduce, Make: Reduce,
			InPlace: true, Supports: anySize,
			Formula: "radix 2, streamed: ⌊log₂ p⌋α + ⌈log₂ p⌉·Sβ + ⌈log₂ p⌉·Sγ, at the root",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				return costOf(knomialDepth(p, radix(shape)), min(1, p-1), rootDegree(p, radix(shape)), 1)
			},
		},
		{
			Name: "tree.ReduceDouble", Collective: schedule.Reduce, Make: ReduceDouble,
			InPlace: true, Supports: anySize,
			Formula: "streamed: ≤⌈log₂ p⌉α + Sβ + ≤Sγ",
			Cost: func(p int, _ schedule.Shape) schedule.Cost {
				depth, degree, _ := doubleShape(p)
				return costOf(depth, 2*min(1, p-1), degree, 2)
			},
		},
		{
			Name: "tree.Gather", Collective: schedule.Gather, Make: Gather,
			InPlace: true, Supports: anySize,
			Formula: "radix 2: ⌊log₂ p⌋α + (p−1)/p·Sβ, at the root",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				k, most := radix(shape), 0
				for v := 1; v < p; v++ {
					most = max(most, extent(v, p, k))
				}
				return costOf(knomialDepth(p, k), most, 0, p)
			},
		},
		{
			Name: "tree.Scatter", Collective: schedule.Scatter, Make: Scatter,
			InPlace: true, Supports: anySize,
			Formula: "radix 2: ⌊log₂ p⌋α + (p−1)/p·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				return costOf(knomialDepth(p, radix(shape)), p-1, 0, p)
			},
		},
	}
}

// costOf is a Cost from numbers of parts that make up S.
func costOf(steps, sent, reduced, parts int) schedule.Cost {
	return schedule.Cost{
		Steps:   steps,
		Sent:    float64(sent) / float64(parts),
		Reduced: float64(reduced) / float64(parts),
	}
}

// knomialDepth is the most edges between the root and a rank: non-zero digits of a number below p.
func knomialDepth(p, k int) int {
	depth := 0
	for v := 1; v < p; v++ {
		d := 0
		for rest := v; rest > 0; rest /= k {
			if rest%k != 0 {
				d++
			}
		}
		depth = max(depth, d)
	}
	return depth
}

func rootDegree(p, k int) int {
	n := knomial(0, p, k)
	return n.degree()
}

// doubleShape is the depth of the deeper of the two trees, the most children of a rank in both
// together, and the most neighbours that a rank sends to in an AllReduce.
func doubleShape(p int) (depth, degree, sent int) {
	for v := range p {
		children, parents := 0, 0
		for _, second := range []bool{false, true} {
			n := double(second, v, p)
			children += n.degree()
			if n.parent >= 0 {
				parents++
			}
			d := 0
			for u := n.parent; u >= 0; d++ {
				up := double(second, u, p)
				u = up.parent
			}
			depth = max(depth, d)
		}
		degree, sent = max(degree, children), max(sent, children+parents)
	}
	return depth, degree, sent
}

package ring

import "github.com/gccl/gccl/schedule"

// Algorithms lists the package's algorithms.
func Algorithms() []schedule.Info {
	return []schedule.Info{
		{
			Name: "ring.AllReduce", Collective: schedule.AllReduce, Make: AllReduce,
			InPlace: true, Supports: supports,
			Formula: "2(p−1)α + 2(p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: int(2 * (p - 1)), Sent: 2 * (p - 1) / p, Reduced: (p - 1) / p}
			}),
		},
		{
			Name: "ring.ReduceScatter", Collective: schedule.ReduceScatter, Make: ReduceScatter,
			InPlace: true, Supports: supports,
			Formula: "(p−1)α + (p−1)/p·Sβ + (p−1)/p·Sγ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: int(p - 1), Sent: (p - 1) / p, Reduced: (p - 1) / p}
			}),
		},
		{
			Name: "ring.AllGather", Collective: schedule.AllGather, Make: AllGather,
			InPlace: true, Uneven: true, Supports: supports,
			Formula: "(p−1)α + (p−1)/p·Sβ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: int(p - 1), Sent: (p - 1) / p}
			}),
		},
		{
			Name: "ring.Broadcast", Collective: schedule.Broadcast, Make: Broadcast,
			InPlace: true, Supports: supports,
			Formula: "streamed: (p−1)α + Sβ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: int(p - 1), Sent: 1}
			}),
		},
		{
			Name: "ring.Reduce", Collective: schedule.Reduce, Make: Reduce,
			InPlace: true, Supports: supports,
			Formula: "streamed: (p−1)α + Sβ + Sγ",
			Cost: cost(func(p float64) schedule.Cost {
				return schedule.Cost{Steps: int(p - 1), Sent: 1, Reduced: 1}
			}),
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

func supports(size int, shape schedule.Shape) error {
	_, err := begin(schedule.Broadcast, 0, size, shape, 1)
	return err
}

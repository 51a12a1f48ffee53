package tree

import "github.com/gccl/gccl/schedule"

// AllReduce reduces along a k-nomial tree, k the radix, and broadcasts along the same tree, the two
// phases on lanes of their own so that they overlap. The order of the ranks is kept.
//
//	cost: radix 2, streamed: 2⌊log₂ p⌋α + ⌈log₂ p⌉·Sβ + ⌈log₂ p⌉·Sγ
func AllReduce(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	m := pieces(shape)
	n := knomial(rank, size, radix(shape))
	up, down := n.both(0, m, 0)
	return schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: m, Out: m, Lanes: []schedule.Lane{up, down}, Early: true, Lazy: true,
	}, nil
}

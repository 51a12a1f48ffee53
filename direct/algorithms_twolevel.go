package direct

import "github.com/gccl/gccl/schedule"

// twoLevels lists compositions of direct algorithms inside hosts with log-step algorithms across.
// Whoever wants others calls the functions of the same names. Where hosts differ in size, costs
// are bounds.
func twoLevels() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.AllReduceTwoLevel", Collective: schedule.AllReduce,
			Make:    AllReduceTwoLevel(ReduceScatterDirect, AllReduceCirculant, AllGatherDirect),
			InPlace: true, Supports: equalHosts,
			Formula: "h hosts: 2α inside + 2⌈log₂ h⌉α across; 2(p−1)/p·Sβ, of that 2(h−1)/p·S across; (p−1)/p·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return cost(2*inside+2*ceilLog2(h), 2*(p-1), p-1, p)
			},
		},
		{
			Name: "direct.AllReduceLeaders", Collective: schedule.AllReduce,
			Make:    AllReduceLeaders(ReduceDirect, AllReduceRecursiveDoubling, BroadcastDirect),
			InPlace: true, Supports: anySize,
			Formula: "h hosts of at most l ranks: 2α inside + about ⌈log₂ h⌉α across; (l−1+⌈log₂ h⌉)·(Sβ + Sγ)",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				c := doublingCost(h, schedule.Shape{Radix: shape.Radix})
				c.Steps += 2 * inside
				more := float64(mostLocal(p, shape) - 1)
				c.Sent, c.Reduced = max(c.Sent+more, float64(inside)), c.Reduced+more
				return c
			},
		},
		{
			Name: "direct.BroadcastTwoLevel", Collective: schedule.Broadcast,
			Make:    BroadcastTwoLevel(BroadcastScatterAllGather, BroadcastDirect),
			InPlace: true, Supports: anySize,
			Formula: "h hosts of at most l ranks: α inside + 2⌈log₂ h⌉α across; (l−1+2(h−1)/h)·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				c := cost(2*ceilLog2(h)+inside, 2*(h-1), 0, h)
				c.Sent += float64(mostLocal(p, shape) - 1)
				return c
			},
		},
		{
			Name: "direct.ReduceTwoLevel", Collective: schedule.Reduce,
			Make:    ReduceTwoLevel(ReduceDirect, ReduceScatterGather),
			InPlace: true, Supports: anySize,
			Formula: "h hosts of at most l ranks: α inside + 2⌈log₂ h⌉α across; 3/2·Sβ, (l−1+(h−1)/h)·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				c := reduceGatherCost(h)
				c.Steps += inside
				c.Sent = max(c.Sent, float64(inside))
				c.Reduced += float64(mostLocal(p, shape) - 1)
				return c
			},
		},
		{
			Name: "direct.AllGatherTwoLevel", Collective: schedule.AllGather,
			Make:    AllGatherTwoLevel(AllGatherBruck, AllGatherDirect),
			InPlace: true, Uneven: true, Supports: equalHosts,
			Formula: "h hosts: α inside + ⌈log₂ h⌉α across; (p−1)/p·Sβ, of that (h−1)/p·S across",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return cost(ceilLog(h, radix(shape))+inside, p-1, 0, p)
			},
		},
		{
			Name: "direct.ReduceScatterTwoLevel", Collective: schedule.ReduceScatter,
			Make:    ReduceScatterTwoLevel(ReduceScatterDirect, ReduceScatterCirculant),
			InPlace: true, Uneven: true, Supports: equalHosts,
			Formula: "h hosts: α inside + ⌈log₂ h⌉α across; (p−1)/p·Sβ, of that (h−1)/p·S across; (p−1)/p·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return cost(ceilLog2(h)+inside, p-1, p-1, p)
			},
		},
	}
}

// levels is the number of hosts, and 1 if one of them has several ranks.
func levels(p int, shape schedule.Shape) (count, inside int) {
	return len(newHosts(p, shape).members), min(1, mostLocal(p, shape)-1)
}

// mostLocal is the number of ranks on the largest host.
func mostLocal(p int, shape schedule.Shape) int {
	most := 0
	for _, m := range newHosts(p, shape).members {
		most = max(most, len(m))
	}
	return most
}

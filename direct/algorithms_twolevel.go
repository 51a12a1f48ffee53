package direct

import (
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
)

// twoLevels lists compositions of direct algorithms inside hosts with log-step algorithms across, and,
// of AllReduce, with a ring across. Whoever wants others calls the functions of the same names.
func twoLevels() []schedule.Info {
	return []schedule.Info{
		{
			Name: "direct.AllReduceTwoLevel", Collective: schedule.AllReduce,
			Make:    AllReduceTwoLevel(ReduceScatterDirect, AllReduceCirculant, AllGatherDirect),
			InPlace: true, Supports: equalHosts,
			Formula: "h hosts of l ranks: (2+2⌈log₂ h⌉)α + 2(p−1)/p·Sβ + (p−1)/p·Sγ, across hosts 2⌈log₂ h⌉α and 2(h−1)/p·Sβ of it",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return cost(2*inside+2*ceilLog2(h), 2*(p-1), p-1, p)
			},
		},
		{
			// A host sends to one host and hears from one, so that no port has a queue while another
			// is idle, as happens to algorithms that change partners once their ranks are not in step.
			Name: "direct.AllReduceTwoLevelRing", Collective: schedule.AllReduce,
			Make:    AllReduceTwoLevel(ReduceScatterDirect, ring.AllReduce, AllGatherDirect),
			InPlace: true, Supports: equalHosts,
			Formula: "h hosts of l ranks: (2+2(h−1))α + 2(p−1)/p·Sβ + (p−1)/p·Sγ, across hosts 2(h−1)α and 2(h−1)/p·Sβ of it",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return cost(2*inside+2*(h-1), 2*(p-1), p-1, p)
			},
		},
		{
			Name: "direct.AllReduceLeaders", Collective: schedule.AllReduce,
			Make:    AllReduceLeaders(ReduceDirect, AllReduceRecursiveDoubling, BroadcastDirect),
			InPlace: true, Supports: anySize,
			Formula: "h hosts of l ranks, h = 2^m: (2+m)α + (l−1+m)·Sβ + (l−1+m)·Sγ; h hosts of l ranks, other h: (4+⌊log₂ h⌋)α + (l+⌊log₂ h⌋)·Sβ + (l+⌊log₂ h⌋)·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				k := min(radix(shape), h)
				steps := doublingCost(h, schedule.Shape{Radix: shape.Radix}).Steps + 2*inside
				return busiest(p, shape, steps, func(host, _, members int) (sent, reduced int) {
					if h == 1 {
						return members - 1, members - 1
					}
					gs := powerGroups(h, k)
					if g := gs.of(host); gs.first(g) == host {
						n := ceilLog(gs.count, k)*(k-1) + gs.len(g) - 1 + members - 1
						return n, n
					}
					return members, members - 1
				}, 1)
			},
		},
		{
			Name: "direct.BroadcastTwoLevel", Collective: schedule.Broadcast,
			Make:    BroadcastTwoLevel(BroadcastScatterAllGather, BroadcastDirect),
			InPlace: true, Supports: anySize,
			Formula: "h hosts of l ranks: (1+2⌈log₂ h⌉)α + ≤(l−1+2(h−1)/h)·Sβ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return busiest(p, shape, 2*ceilLog2(h)+inside, func(host, root, members int) (sent, reduced int) {
					return (members-1)*h + scatterAllGatherSent((host-root+h)%h, h), 0
				}, h)
			},
		},
		{
			Name: "direct.ReduceTwoLevel", Collective: schedule.Reduce,
			Make:    ReduceTwoLevel(ReduceDirect, ReduceScatterGather),
			InPlace: true, Supports: anySize,
			Formula: "h hosts of l ranks, h = 2^m: (1+2m)α + (3/2−1/h)·Sβ + (l−1+(h−1)/h)·Sγ; h hosts of l ranks, other h, q = 2^⌊log₂ h⌋: (2+2⌊log₂ h⌋)α + (3/2−1/q)·Sβ + (l+1−1/q)·Sγ",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				across := reduceGatherCost(h)
				gs := powerGroups(h, 2)
				n := gs.count
				c := busiest(p, shape, across.Steps+inside, func(host, root, members int) (sent, reduced int) {
					g := gs.of(host)
					leads := gs.first(g) == host
					if g == gs.of(root) {
						leads = host == root
					}
					if !leads {
						return 0, (members - 1) * n
					}
					return 0, (members-1+gs.len(g)-1)*n + n - 1
				}, n)
				c.Sent = max(across.Sent, float64(inside))
				return c
			},
		},
		{
			Name: "direct.AllGatherTwoLevel", Collective: schedule.AllGather,
			Make:    AllGatherTwoLevel(AllGatherBruck, AllGatherDirect),
			InPlace: true, Uneven: true, Supports: equalHosts,
			Formula: "radix k, h hosts of l ranks: (1+⌈log_k h⌉)α + (p−1)/p·Sβ, across hosts ⌈log_k h⌉α and (h−1)/p·Sβ of it",
			Cost: func(p int, shape schedule.Shape) schedule.Cost {
				h, inside := levels(p, shape)
				return cost(ceilLog(h, radix(shape))+inside, p-1, 0, p)
			},
		},
		{
			Name: "direct.ReduceScatterTwoLevel", Collective: schedule.ReduceScatter,
			Make:    ReduceScatterTwoLevel(ReduceScatterDirect, ReduceScatterCirculant),
			InPlace: true, Uneven: true, Supports: equalHosts,
			Formula: "h hosts of l ranks: (1+⌈log₂ h⌉)α + (p−1)/p·Sβ + (p−1)/p·Sγ, across hosts ⌈log₂ h⌉α and (h−1)/p·Sβ of it",
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

// busiest is a cost of which the leaders of the hosts bear the most: parts of S that the leader of
// a host sends and combines, given its place among the hosts, that of the root's host and how many
// ranks its host has. No other rank sends or combines more.
func busiest(p int, shape schedule.Shape, steps int, of func(host, root, members int) (sent, reduced int), parts int) schedule.Cost {
	h := newHosts(p, shape)
	c := schedule.Cost{Steps: steps}
	for i, m := range h.members {
		sent, reduced := of(i, h.host[shape.Root], len(m))
		c.Sent = max(c.Sent, float64(sent)/float64(parts))
		c.Reduced = max(c.Reduced, float64(reduced)/float64(parts))
	}
	return c
}

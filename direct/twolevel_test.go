package direct_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/tree"
)

// hostings is ways to spread ranks over hosts; even ones have equally many on each.
var hostings = []struct {
	name  string
	hosts []int
	even  bool
}{
	{"one host", []int{0, 0, 0}, true},
	{"one rank a host", []int{0, 1, 2, 3, 4}, true},
	{"2 × 2", []int{0, 0, 1, 1}, true},
	{"3 × 4", []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, true},
	{"4 × 3 dealt round", []int{7, 5, 3, 1, 7, 5, 3, 1, 7, 5, 3, 1}, true},
	{"5 × 2", []int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}, true},
	{"uneven", []int{0, 0, 0, 1, 2, 2, 1, 1, 1}, false},
}

func TestTwoLevel(t *testing.T) {
	for _, c := range []struct {
		name       string
		collective schedule.Collective
		alg        schedule.Algorithm
		even       bool
	}{
		{"direct, circulant", schedule.AllReduce, direct.AllReduceTwoLevel(direct.ReduceScatterDirect, direct.AllReduceCirculant, direct.AllGatherDirect), true},
		{"direct, ring", schedule.AllReduce, direct.AllReduceTwoLevel(direct.ReduceScatterDirect, ring.AllReduce, direct.AllGatherDirect), true},
		{"circulant, double tree", schedule.AllReduce, direct.AllReduceTwoLevel(direct.ReduceScatterCirculant, tree.AllReduceDouble, direct.AllGatherBruck), true},
		{"halving", schedule.AllReduce, direct.AllReduceTwoLevel(direct.ReduceScatterHalving, direct.AllReduceHalvingDoubling, direct.AllGatherDoubling), true},
		{"one shot", schedule.AllReduce, direct.AllReduceTwoLevel(direct.ReduceScatterDirect, direct.AllReduceOneShot, direct.AllGatherDirect), true},
		{"leaders, direct", schedule.AllReduce, direct.AllReduceLeaders(direct.ReduceDirect, direct.AllReduceRecursiveDoubling, direct.BroadcastDirect), false},
		{"leaders, trees", schedule.AllReduce, direct.AllReduceLeaders(tree.ReduceDouble, tree.AllReduceDouble, tree.BroadcastDouble), false},
		{"leaders, scatter", schedule.AllReduce, direct.AllReduceLeaders(direct.ReduceScatterGather, direct.AllReduceTwoShot, direct.BroadcastScatterAllGather), false},
		{"direct", schedule.Broadcast, direct.BroadcastTwoLevel(direct.BroadcastDirect, direct.BroadcastDirect), false},
		{"trees", schedule.Broadcast, direct.BroadcastTwoLevel(tree.BroadcastDouble, tree.Broadcast), false},
		{"scatter", schedule.Broadcast, direct.BroadcastTwoLevel(direct.BroadcastScatterAllGather, tree.BroadcastDouble), false},
		{"direct", schedule.Reduce, direct.ReduceTwoLevel(direct.ReduceDirect, direct.ReduceDirect), false},
		{"trees", schedule.Reduce, direct.ReduceTwoLevel(tree.ReduceDouble, tree.Reduce), false},
		{"scatter", schedule.Reduce, direct.ReduceTwoLevel(tree.Reduce, direct.ReduceScatterGather), false},
		{"direct", schedule.AllGather, direct.AllGatherTwoLevel(direct.AllGatherDirect, direct.AllGatherDirect), true},
		{"logs", schedule.AllGather, direct.AllGatherTwoLevel(direct.AllGatherBruck, direct.AllGatherDoubling), true},
		{"PAT", schedule.AllGather, direct.AllGatherTwoLevel(direct.AllGatherPAT, direct.AllGatherPAT), true},
		{"direct", schedule.ReduceScatter, direct.ReduceScatterTwoLevel(direct.ReduceScatterDirect, direct.ReduceScatterDirect), true},
		{"logs", schedule.ReduceScatter, direct.ReduceScatterTwoLevel(direct.ReduceScatterHalving, direct.ReduceScatterCirculant), true},
		{"PAT", schedule.ReduceScatter, direct.ReduceScatterTwoLevel(direct.ReduceScatterPAT, direct.ReduceScatterPAT), true},
	} {
		t.Run(c.collective.String()+", "+c.name, func(t *testing.T) {
			for _, h := range hostings {
				size := len(h.hosts)
				for _, root := range roots(c.collective, size) {
					for _, pieces := range []int{1, 2} {
						shape := schedule.Shape{Root: root, Hosts: h.hosts, Pieces: pieces}
						_, err := verify.Check(c.alg, c.collective, size, shape, verify.Options{})
						if c.even && !h.even {
							require.Error(t, err)
							continue
						}
						require.NoErrorf(t, err, "%s, %+v", h.name, shape)
					}
				}
			}
		})
	}
}

// roots is all ranks where one is special, else one.
func roots(c schedule.Collective, size int) []int {
	if !c.Rooted() {
		return []int{0}
	}
	var all []int
	for r := range size {
		all = append(all, r)
	}
	return all
}

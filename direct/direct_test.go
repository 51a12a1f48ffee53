package direct_test

import (
	"testing"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

// TestProve holds every algorithm against its description.
func TestProve(t *testing.T) {
	for _, info := range direct.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			t.Parallel()
			verifytest.Prove(t, info, func(size int) []schedule.Shape { return shapes(info.Name, size) })
		})
	}
}

// shapes is what to vary for an algorithm, without roots.
func shapes(name string, size int) []schedule.Shape {
	switch name {
	case "direct.ScanLinear", "direct.ExscanLinear":
		return []schedule.Shape{{}, {Pieces: 3}}
	case "direct.AllReduceRecursiveDoubling", "direct.AllGatherBruck", "direct.AllToAllBruck":
		return []schedule.Shape{{}, {Radix: 3}, {Radix: 4}}
	case "direct.ReduceScatterPAT", "direct.AllGatherPAT":
		return []schedule.Shape{{}, {Aggregate: 1}, {Aggregate: 2}, {Aggregate: 8}}
	case "direct.AllReduceTwoLevel", "direct.AllReduceTwoLevelRing", "direct.AllReduceLeaders", "direct.BroadcastTwoLevel",
		"direct.ReduceTwoLevel", "direct.AllGatherTwoLevel", "direct.ReduceScatterTwoLevel":
		shapes := []schedule.Shape{{}}
		for _, hosts := range []int{2, 3, 5} {
			near, dealt := make([]int, size), make([]int, size)
			for r := range size {
				near[r], dealt[r] = r*hosts/size, r%hosts
			}
			shapes = append(shapes, schedule.Shape{Hosts: near}, schedule.Shape{Hosts: dealt})
		}
		return shapes
	}
	return []schedule.Shape{{}}
}

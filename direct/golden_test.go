package direct_test

import (
	"flag"
	"testing"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden tells what every rank of a few does, and what it costs.
func TestGolden(t *testing.T) {
	for _, tc := range []struct {
		file  string
		make  schedule.Algorithm
		size  int
		shape schedule.Shape
	}{
		{"allreduce_oneshot_3", direct.AllReduceOneShot, 3, schedule.Shape{}},
		{"allreduce_twoshot_3", direct.AllReduceTwoShot, 3, schedule.Shape{}},
		{"allreduce_doubling_5", direct.AllReduceRecursiveDoubling, 5, schedule.Shape{}},
		{"allreduce_multiplying_3", direct.AllReduceRecursiveDoubling, 3, schedule.Shape{Radix: 3}},
		{"allreduce_halving_4", direct.AllReduceHalvingDoubling, 4, schedule.Shape{}},
		{"allreduce_circulant_3", direct.AllReduceCirculant, 3, schedule.Shape{}},
		{"allreduce_twolevel_2x2", direct.AllReduceTwoLevel(direct.ReduceScatterDirect, direct.AllReduceOneShot, direct.AllGatherDirect), 4, schedule.Shape{Hosts: []int{0, 0, 1, 1}}},
		{"reducescatter_direct_3", direct.ReduceScatterDirect, 3, schedule.Shape{}},
		{"reducescatter_halving_4", direct.ReduceScatterHalving, 4, schedule.Shape{}},
		{"reducescatter_circulant_3", direct.ReduceScatterCirculant, 3, schedule.Shape{}},
		{"reducescatter_pat_4", direct.ReduceScatterPAT, 4, schedule.Shape{}},
		{"reducescatter_pat_4_aggregate1", direct.ReduceScatterPAT, 4, schedule.Shape{Aggregate: 1}},
		{"allgather_direct_3", direct.AllGatherDirect, 3, schedule.Shape{}},
		{"allgather_bruck_5", direct.AllGatherBruck, 5, schedule.Shape{}},
		{"allgather_doubling_4", direct.AllGatherDoubling, 4, schedule.Shape{}},
		{"allgather_pat_4", direct.AllGatherPAT, 4, schedule.Shape{Aggregate: 2}},
		{"broadcast_direct_3_root1", direct.BroadcastDirect, 3, schedule.Shape{Root: 1}},
		{"broadcast_scatter_4_root1", direct.BroadcastScatterAllGather, 4, schedule.Shape{Root: 1}},
		{"reduce_direct_3_root1", direct.ReduceDirect, 3, schedule.Shape{Root: 1}},
		{"reduce_scattergather_4_root1", direct.ReduceScatterGather, 4, schedule.Shape{Root: 1}},
		{"gather_direct_3_root1", direct.GatherDirect, 3, schedule.Shape{Root: 1}},
		{"scatter_direct_3_root1", direct.ScatterDirect, 3, schedule.Shape{Root: 1}},
		{"alltoall_pairwise_3", direct.AllToAllPairwise, 3, schedule.Shape{}},
		{"alltoall_direct_3", direct.AllToAllDirect, 3, schedule.Shape{}},
		{"alltoall_bruck_4", direct.AllToAllBruck, 4, schedule.Shape{}},
		{"scan_linear_3", direct.ScanLinear, 3, schedule.Shape{}},
		{"scan_doubling_4", direct.ScanDoubling, 4, schedule.Shape{}},
		{"exscan_linear_3", direct.ExscanLinear, 3, schedule.Shape{}},
		{"exscan_doubling_4", direct.ExscanDoubling, 4, schedule.Shape{}},
	} {
		t.Run(tc.file, func(t *testing.T) { verifytest.Golden(t, *update, tc.file, tc.make, tc.size, tc.shape) })
	}
}

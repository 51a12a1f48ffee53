package tree_test

import (
	"flag"
	"testing"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify/verifytest"
	"github.com/gccl/gccl/tree"
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
		{"allreduce_4", tree.AllReduce, 4, schedule.Shape{}},
		{"allreduce_double_5", tree.AllReduceDouble, 5, schedule.Shape{}},
		{"broadcast_8_root1", tree.Broadcast, 8, schedule.Shape{Root: 1}},
		{"broadcast_5_radix3", tree.Broadcast, 5, schedule.Shape{Radix: 3, Pieces: 2}},
		{"broadcast_double_4_root1", tree.BroadcastDouble, 4, schedule.Shape{Root: 1}},
		{"reduce_4_root1", tree.Reduce, 4, schedule.Shape{Root: 1}},
		{"reduce_double_4", tree.ReduceDouble, 4, schedule.Shape{}},
		{"gather_4_root1", tree.Gather, 4, schedule.Shape{Root: 1}},
		{"scatter_4_root1", tree.Scatter, 4, schedule.Shape{Root: 1}},
	} {
		t.Run(tc.file, func(t *testing.T) { verifytest.Golden(t, *update, tc.file, tc.make, tc.size, tc.shape) })
	}
}

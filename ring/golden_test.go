package ring_test

import (
	"flag"
	"testing"

	"github.com/gccl/gccl/ring"
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
		{"allreduce_1", ring.AllReduce, 1, schedule.Shape{}},
		{"allreduce_3", ring.AllReduce, 3, schedule.Shape{}},
		{"allreduce_4", ring.AllReduce, 4, schedule.Shape{}},
		{"reducescatter_4", ring.ReduceScatter, 4, schedule.Shape{}},
		{"allgather_3", ring.AllGather, 3, schedule.Shape{}},
		{"broadcast_3_root1", ring.Broadcast, 3, schedule.Shape{Root: 1, Pieces: 2}},
		{"reduce_3_root1", ring.Reduce, 3, schedule.Shape{Root: 1, Pieces: 2}},
	} {
		t.Run(tc.file, func(t *testing.T) { verifytest.Golden(t, *update, tc.file, tc.make, tc.size, tc.shape) })
	}
}

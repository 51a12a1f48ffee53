package tree_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
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
		t.Run(tc.file, func(t *testing.T) {
			all := verifytest.Schedules(t, tc.make, tc.size, tc.shape)
			rep, err := verify.All(all, verify.Options{})
			require.NoError(t, err)
			got := fmt.Sprintf("# %d steps, %d of %d chunks sent, %d reduced, depth %d, digest of rank 0 %016x\n",
				rep.Steps, rep.Sent, rep.Chunks, rep.Reduced, rep.Depth, all[0].Digest())
			for i := range all {
				got += "\n" + all[i].String()
			}
			path := filepath.Join("testdata", tc.file+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

package ring_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden tells each algorithm for a few ranks as a story: what every rank does, how the steps
// group into streamed ones, and what it costs.
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
		t.Run(tc.file, func(t *testing.T) {
			all := verifytest.Schedules(t, tc.make, tc.size, tc.shape)
			rep, err := verify.All(all, verify.Options{})
			require.NoError(t, err)
			got := fmt.Sprintf("# %d steps, %d chunk times, %d of %d chunks sent, %d reduced, depth %d, digest of rank 0 %016x\n",
				rep.Steps, rep.ChunkTimes, rep.Sent, rep.Chunks, rep.Reduced, rep.Depth, all[0].Digest())
			for i := range all {
				got += "\n" + all[i].String() + groups(&all[i])
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

// groups writes the streamed steps as ranges of step indices; ~ marks what need not be stored.
func groups(s *schedule.Schedule) string {
	var b strings.Builder
	for _, lane := range schedule.Fuse(s) {
		b.WriteString("# streamed:")
		for _, g := range lane {
			fmt.Fprintf(&b, " %d", g.First)
			if g.End > g.First+1 {
				fmt.Fprintf(&b, "–%d", g.End-1)
			}
			if g.Transient {
				b.WriteString("~")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

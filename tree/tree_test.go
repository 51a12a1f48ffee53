package tree_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/schedule/verify/verifytest"
	"github.com/gccl/gccl/tree"
)

// TestProve holds every algorithm against its description.
func TestProve(t *testing.T) {
	for _, info := range tree.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			t.Parallel()
			verifytest.Prove(t, info, func(int) []schedule.Shape {
				switch info.Name {
				case "tree.AllReduceDouble", "tree.BroadcastDouble", "tree.ReduceDouble":
					return []schedule.Shape{{}, {Pieces: 3}}
				case "tree.Gather", "tree.Scatter":
					return []schedule.Shape{{}, {Radix: 3}, {Radix: 4}}
				}
				return []schedule.Shape{{}, {Radix: 4, Pieces: 2}}
			})
		})
	}
}

// TestDoubleOrder: where the second tree is the mirrored first one, it keeps the order of the ranks.
func TestDoubleOrder(t *testing.T) {
	for size := 3; size < 40; size++ {
		rep, err := verify.Check(tree.AllReduceDouble, schedule.AllReduce, size, schedule.Shape{}, verify.Options{SkipOrder: true})
		require.NoError(t, err)
		require.Equal(t, size%2 == 1, rep.Ordered, "%d ranks", size)
	}
}

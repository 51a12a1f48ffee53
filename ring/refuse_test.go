package ring_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
)

// TestRefuse: arguments that make no sense are errors, not schedules.
func TestRefuse(t *testing.T) {
	for _, info := range ring.Algorithms() {
		for _, tc := range []struct {
			rank, size int
			shape      schedule.Shape
			want       string
		}{
			{0, 0, schedule.Shape{}, "size 0"},
			{-1, 2, schedule.Shape{}, "rank -1 outside 2 ranks"},
			{2, 2, schedule.Shape{}, "rank 2 outside 2 ranks"},
			{0, 2, schedule.Shape{Pieces: -1}, "-1 pieces"},
		} {
			_, err := info.Make(tc.rank, tc.size, tc.shape)
			require.ErrorContains(t, err, tc.want, info.Name)
		}
		_, err := info.Make(0, 2, schedule.Shape{Root: 2})
		if info.Collective.Rooted() {
			require.ErrorContains(t, err, "root 2 outside 2 ranks", info.Name)
		} else {
			require.NoError(t, err, "%s has no root", info.Name)
		}
	}
}

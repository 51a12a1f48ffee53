package ring_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

// TestProveLarge verifies a large ring: 67 million steps.
func TestProveLarge(t *testing.T) {
	size := 256
	if verifytest.Proving() {
		size = 4096
	}
	rep, err := verify.Symmetric(ring.AllReduce, schedule.AllReduce, size, schedule.Shape{})
	require.NoError(t, err)
	require.Equal(t, 2*(size-1), rep.Steps)
	require.Equal(t, size-1, rep.Depth)
}

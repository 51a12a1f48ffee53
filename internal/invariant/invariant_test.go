package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	Check(true, "never")
	if !Enabled {
		require.NotPanics(t, func() { Check(false, "rank %d", 3) })
		return
	}
	require.PanicsWithError(t, "gccl: broken invariant: rank 3", func() { Check(false, "rank %d", 3) })
}

func TestCheckAllocatesNothing(t *testing.T) {
	n := 1 << 20 // too large for the runtime's preallocated small integers
	require.Zero(t, testing.AllocsPerRun(100, func() { Check(n > 0, "n is %d", n) }))
}

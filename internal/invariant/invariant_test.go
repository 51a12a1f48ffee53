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

func TestBrokenPanicsInEveryBuild(t *testing.T) {
	require.PanicsWithError(t, "gccl: broken invariant: step 7", func() { Broken("step %d", 7) })
}

func TestCheckAllocatesNothing(t *testing.T) {
	n := 1 << 20 // too large for the runtime's preallocated small integers
	require.Zero(t, testing.AllocsPerRun(100, func() { Check(n > 0, "n is %d", n) }))
}

func TestSometimes(t *testing.T) {
	require.False(t, Sometimes(0))
	require.Equal(t, Enabled, Sometimes(100))
}

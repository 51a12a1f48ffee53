package cpu_test

import (
	"runtime"
	"testing"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/stretchr/testify/require"
)

func TestSet(t *testing.T) {
	require.Equal(t, 0, cpu.Set(nil).Count())
	require.Equal(t, cpu.Set{1<<63 - 1 | 1<<63, 1}, cpu.First(65))
	a, b := cpu.Set{0b0101}, cpu.Set{0b0110, 1}
	require.Equal(t, cpu.Set{0b0111, 1}, a.Union(b))
	require.Equal(t, cpu.Set{0b0111, 1}, b.Union(a))
	require.Equal(t, 4, a.Union(b).Count())
	require.Equal(t, cpu.Set{0b0101}, a, "Union changed its receiver")
}

// TestAllowed holds it against what the runtime found at its start.
func TestAllowed(t *testing.T) {
	require.Equal(t, runtime.NumCPU(), cpu.Allowed().Count())
}

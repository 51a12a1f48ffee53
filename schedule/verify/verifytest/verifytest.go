// Package verifytest verifies algorithms in tests: [Prove] for everything that an algorithm
// promises, [Golden] for what a reader may follow, [Schedules] for tests that look at schedules themselves.
package verifytest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
)

// Schedules makes the schedules of all ranks.
func Schedules(t testing.TB, alg schedule.Algorithm, size int, shape schedule.Shape) []schedule.Schedule {
	t.Helper()
	all := make([]schedule.Schedule, size)
	for r := range all {
		s, err := alg(r, size, shape)
		require.NoError(t, err, "rank %d of %d", r, size)
		all[r] = s
	}
	return all
}

// Golden verifies an algorithm for one size and shape and holds what every rank does, and what it costs, against the
// file testdata/name.golden, which update rewrites.
func Golden(t *testing.T, update bool, name string, alg schedule.Algorithm, size int, shape schedule.Shape) {
	t.Helper()
	all := Schedules(t, alg, size, shape)
	rep, err := verify.All(all, verify.Options{})
	require.NoError(t, err)
	got := fmt.Sprintf("# %d steps, %d of %d chunks sent, %d reduced, depth %d, digest of rank 0 %016x\n",
		rep.Steps, rep.Sent, rep.Chunks, rep.Reduced, rep.Depth, all[0].Digest())
	for i := range all {
		got += "\n" + all[i].String()
	}
	path := filepath.Join("testdata", name+".golden")
	if update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

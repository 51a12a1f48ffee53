// Package verifytest verifies algorithms in tests: [Prove] for everything that an algorithm
// promises, [Schedules] for tests that look at schedules themselves.
package verifytest

import (
	"testing"

	"github.com/gccl/gccl/schedule"
)

// Schedules makes the schedules of all ranks.
func Schedules(t testing.TB, alg schedule.Algorithm, size int, shape schedule.Shape) []schedule.Schedule {
	t.Helper()
	all := make([]schedule.Schedule, size)
	for r := range all {
		s, err := alg(r, size, shape)
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, size, err)
		}
		all[r] = s
	}
	return all
}

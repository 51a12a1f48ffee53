// Package verifytest verifies algorithms in tests.
//
//	func TestAllReduce(t *testing.T) {
//		verifytest.Exhaustive(t, schedule.AllReduce, ring.AllReduce, verifytest.Sizes(1, 16))
//	}
package verifytest

import (
	"testing"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
)

// Sizes is the numbers from first to last.
func Sizes(first, last int) []int {
	var sizes []int
	for n := first; n <= last; n++ {
		sizes = append(sizes, n)
	}
	return sizes
}

// Exhaustive verifies alg for every size, every root if the collective has one, and one to four
// channels.
func Exhaustive(t *testing.T, c schedule.Collective, alg schedule.Algorithm, sizes []int) {
	t.Helper()
	Shapes(t, c, alg, sizes, schedule.Shape{})
}

// Shapes is Exhaustive for each of the shapes, whose Root it sets.
func Shapes(t *testing.T, c schedule.Collective, alg schedule.Algorithm, sizes []int, shapes ...schedule.Shape) {
	t.Helper()
	for _, size := range sizes {
		roots := 1
		if c.Rooted() {
			roots = size
		}
		for _, shape := range shapes {
			for shape.Root = range roots {
				for _, channels := range []int{1, 2, 3, 4} {
					_, err := verify.Check(alg, c, size, shape, verify.Options{Channels: channels})
					if err != nil {
						t.Fatalf("%v, %d ranks, shape %+v, %d channels: %v", c, size, shape, channels, err)
					}
				}
			}
		}
	}
}

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

// Package verifytest verifies algorithms in tests.
//
//	func TestAllReduce(t *testing.T) {
//		verifytest.Exhaustive(t, schedule.AllReduce, ring.AllReduce, verifytest.Sizes(1, 16))
//	}
package verifytest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sync/errgroup"

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

// Shapes is Exhaustive for each of the shapes, whose Root it sets. It uses all processors.
func Shapes(t *testing.T, c schedule.Collective, alg schedule.Algorithm, sizes []int, shapes ...schedule.Shape) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, size := range sizes {
		for _, shape := range shapes {
			for root := range roots(c, size) {
				g.Go(func() error { return channels(c, alg, size, root, shape) })
			}
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// gcPercent lets garbage of the verifier, whose live heap is small, pile up for a while.
const gcPercent = 1000

func roots(c schedule.Collective, size int) int {
	if c.Rooted() {
		return size
	}
	return 1
}

func channels(c schedule.Collective, alg schedule.Algorithm, size, root int, shape schedule.Shape) error {
	shape.Root = root
	for n := 1; n <= 4; n++ {
		if _, err := verify.Check(alg, c, size, shape, verify.Options{Channels: n}); err != nil {
			return fmt.Errorf("%v, %d ranks, shape %+v, %d channels: %w", c, size, shape, n, err)
		}
	}
	return nil
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

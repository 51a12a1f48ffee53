package cpu

import (
	"math"
	"testing"
)

func TestPauseReturns(t *testing.T) {
	for _, n := range []int{math.MinInt, -1, 0, 1, 2, 1000} {
		Pause(n)
	}
}

func BenchmarkPause(b *testing.B) {
	for b.Loop() {
		Pause(1)
	}
}

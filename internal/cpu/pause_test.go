package cpu

import "testing"

func TestPauseReturns(t *testing.T) {
	for _, n := range []int{-1 << 63, -1, 0, 1, 2, 1000} {
		Pause(n)
	}
}

func BenchmarkPause(b *testing.B) {
	for b.Loop() {
		Pause(1)
	}
}

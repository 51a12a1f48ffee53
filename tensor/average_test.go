package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAvgNeverOverflowsInAnyOrder adds contributions at or just below the largest value in random
// order, two partial results at a time, as an adversary of the proof at average.
func TestAvgNeverOverflowsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 700)).Draw(t, "ranks")
		averageInRandomOrder[float32](t, n, func(u uint32) float32 { return math.Float32frombits(0x7F7FFFFF - u) },
			func(x float32) float64 { return float64(x) })
		averageInRandomOrder[float64](t, n, func(u uint32) float64 { return math.Float64frombits(0x7FEFFFFFFFFFFFFF - uint64(u)) },
			func(x float64) float64 { return x })
		averageInRandomOrder[F16](t, n, func(u uint32) F16 { return 0x7BFF - F16(u) }, wide[F16])
		averageInRandomOrder[BF16](t, n, func(u uint32) BF16 { return 0x7F7F - BF16(u) }, wide[BF16])
		averageInRandomOrder[E4M3](t, n, func(u uint32) E4M3 { return 0x7E - E4M3(u) }, wide[E4M3])
		averageInRandomOrder[E5M2](t, n, func(u uint32) E5M2 { return 0x7B - E5M2(u) }, wide[E5M2])
	})
}

func wide[T interface{ Float32() float32 }](x T) float64 { return float64(x.Float32()) }

func averageInRandomOrder[T Element](t *rapid.T, n int, below func(units uint32) T, value func(T) float64) {
	r := mustReducer(t, TypeOf[T](), Avg, n)
	parts := make([][]byte, n)
	lower := rapid.Uint32Range(0, 2).Draw(t, "units below the largest")
	for i := range parts {
		x := []T{below(uint32(i) % (lower + 1))}
		parts[i] = Of(x).Bytes()
		r.Pre(parts[i], parts[i])
	}
	for len(parts) > 1 {
		i := rapid.IntRange(0, len(parts)-2).Draw(t, "i")
		r.Reduce(parts[i:i+1], parts[i:i+2])
		parts = append(parts[:i+1], parts[i+2:]...)
	}
	r.Post(parts[0])
	x := value(elements[T](parts[0])[0])
	require.False(t, math.IsNaN(x) || math.IsInf(x, 0), "%d ranks: %v", n, x)
	require.Positive(t, x)
}

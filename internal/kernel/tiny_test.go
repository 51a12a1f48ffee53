package kernel

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Short sums are what the plain kernels make of them, bit for bit but for the payload of a NaN, whatever the
// alignment, also where the destination is a source.
func TestTinyIsFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dt := rapid.SampledFrom([]Type{Float32, Float64, Int32, Uint32, Int64, Uint64}).Draw(t, "type")
		n := rapid.IntRange(1, tinyMost/dt.Size()).Draw(t, "elements") * dt.Size()
		draw := func(name string) []byte {
			off := rapid.IntRange(0, 9).Draw(t, name+" begins")
			return rapid.SliceOfN(rapid.Byte(), n+off, n+off).Draw(t, name)[off:]
		}
		a, b, dst := draw("a"), draw("b"), draw("dst")
		want := make([]byte, n)
		generic(dt, Sum, [][]byte{want}, [][]byte{a, b})
		switch rapid.IntRange(0, 2).Draw(t, "destination") {
		case 0:
			dst = a
		case 1:
			dst = b
		}
		require.True(t, tiny(dt, Sum, dst, a, b))
		require.True(t, sameNumbers(dt, want, dst), "%x, want %x", dst, want)
	})
	require.False(t, tiny(Float32, Max, make([]byte, 4), make([]byte, 4), make([]byte, 4)))
}

// sameNumbers compares bits, but takes every NaN for the same.
func sameNumbers(dt Type, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	switch dt {
	case Float32:
		x, y := view(make([]float32, len(a)/4), a), view(make([]float32, len(b)/4), b)
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
				return false
			}
		}
		return true
	case Float64:
		x, y := view(make([]float64, len(a)/8), a), view(make([]float64, len(b)/8), b)
		for i := range x {
			if math.Float64bits(x[i]) != math.Float64bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
				return false
			}
		}
		return true
	}
	return false
}

package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Short sums are what the plain kernels make of them, bit for bit, NaN included, whatever the alignment, also where
// the destination is a source.
func TestTinyIsFold(t *testing.T) {
	for _, dt := range []Type{Float32, Float64, Int32, Uint32, Int64, Uint64} {
		rng := rand.New(rand.NewPCG(uint64(dt), 1))
		for range 20000 {
			n := 1 + rng.IntN(tinyMost/dt.Size())
			a, b, dst, want := buffer(rng, dt, n), buffer(rng, dt, n), buffer(rng, dt, n), buffer(rng, dt, n)
			fill(rng, dt, a)
			fill(rng, dt, b)
			generic(dt, Sum, [][]byte{want}, [][]byte{a, b})
			x, y := bytes.Clone(a), bytes.Clone(b)
			switch rng.IntN(3) {
			case 0:
				dst = a
			case 1:
				dst = b
			}
			require.True(t, tiny(dt, Sum, dst, a, b))
			require.Equal(t, want, dst, "%x + %x", x, y)
		}
	}
	require.False(t, tiny(Float32, Max, make([]byte, 4), make([]byte, 4), make([]byte, 4)))
}

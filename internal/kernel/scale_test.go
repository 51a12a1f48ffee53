package kernel

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// dumbDivide is x / by for codes of Float32 or Float64; by is positive and finite.
func dumbDivide(f *dumbFormat, x uint64, by float64) uint64 {
	switch {
	case f.nan(x):
		return f.quiet(x)
	case f.inf(x), f.magnitude(x) == 0:
		return x
	default:
		v := f.value(x)
		return dumbRound(f, new(big.Float).SetPrec(400).Quo(big.NewFloat(v), big.NewFloat(by)))
	}
}

func TestScaleAndDivideAgainstDumb(t *testing.T) {
	for _, dt := range []Type{Float16, BFloat16, Float32, Float64, Float8E4M3, Float8E5M2} {
		t.Run(typeName(dt), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(dt)))
			acc := dt
			if dt.Size() < 4 {
				acc = Float32
			}
			f := dumbFormats[acc]
			for _, by := range []float64{1, 0.5, 0.75, 0.625, 0x1p-24, 3, -0.1, 1e30, math.Inf(1), math.NaN()} {
				byCode := math.Float64bits(by)
				if acc == Float32 {
					byCode = uint64(math.Float32bits(float32(by)))
				}
				n := rng.IntN(300)
				src, dst := buffer(rng, dt, n), buffer(rng, dt, n)
				fill(rng, dt, src)
				scaled, divided := make([]byte, len(src)), make([]byte, len(src))
				for i := range n {
					x := getCode(dt, src, i)
					if acc != dt {
						x = dumbWiden(dt, x)
					}
					r := dumbFloat(f, Prod, x, byCode)
					q := dumbDivide(f, x, f.value(byCode))
					finite := !f.nan(x) && !f.inf(x)
					if acc != dt {
						r, q = dumbNarrow(dt, r), dumbNarrow(dt, q)
					}
					if g := dumbFormats[dt]; finite && (g.nan(q) || g.inf(q)) {
						q--
					}
					putCode(dt, scaled, i, r)
					putCode(dt, divided, i, q)
				}
				Scale(dt, dst, src, by)
				requireSame(t, dt, scaled, dst, "scaled by %v", by)
				if by > 0 && by <= 1 {
					copy(dst, src)
					Divide(dt, dst, by)
					requireSame(t, dt, divided, dst, "divided by %v", by)
				}
				Scale(dt, src, src, by)
				requireSame(t, dt, scaled, src, "scaled in place by %v", by)
			}
		})
	}
}

func TestScaleAndDivideIntegersAgainstDumb(t *testing.T) {
	for dt := Int8; dt <= Uint64; dt++ {
		t.Run(typeName(dt), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(8, uint64(dt)))
			for _, by := range []int64{1, 2, 3, 7, 127, 300, 1 << 24} {
				n := rng.IntN(300)
				src, dst := buffer(rng, dt, n), buffer(rng, dt, n)
				fill(rng, dt, src)
				scaled, divided := make([]byte, len(src)), make([]byte, len(src))
				for i := range n {
					x := dumbBig(dt, getCode(dt, src, i))
					putCode(dt, scaled, i, dumbWrap(dt, new(big.Int).Mul(x, big.NewInt(by))))
					putCode(dt, divided, i, dumbWrap(dt, new(big.Int).Quo(x, big.NewInt(by))))
				}
				ScaleInt(dt, dst, src, by)
				requireSame(t, dt, scaled, dst, "scaled by %d", by)
				DivideInt(dt, src, by)
				requireSame(t, dt, divided, src, "divided by %d", by)
			}
		})
	}
}

// TestDivideNarrowRoundsOnce checks that dividing in float32 and rounding again gives the nearest
// value to the exact quotient, for every float16 and bfloat16 and the divisors of Avg (n·2^−k) up
// to the number of ranks for which docs/numerics.md promises it.
func TestDivideNarrowRoundsOnce(t *testing.T) {
	for _, dt := range []Type{Float16, BFloat16} {
		t.Run(typeName(dt), func(t *testing.T) {
			f := dumbFormats[dt]
			for _, by := range []float64{3. / 4, 5. / 8, 7. / 8, 1023. / 1024, 513. / 1024, 2047. / 2048, 1025. / 2048, 1365. / 2048} {
				b := make([]byte, 2)
				for c := range f.topExp() {
					putCode(dt, b, 0, c)
					Divide(dt, b, by)
					q := new(big.Float).SetPrec(60).Quo(big.NewFloat(f.value(c)), big.NewFloat(by))
					v, _ := q.Float64() // innocuous: 53 bits are more than 2·11+2
					if got, want := getCode(dt, b, 0), min(f.round(v), f.topExp()-1); got != want {
						require.Equal(t, fmt.Sprintf("%#x", want), fmt.Sprintf("%#x", got), "%#x / %v", c, by)
					}
				}
			}
		})
	}
}

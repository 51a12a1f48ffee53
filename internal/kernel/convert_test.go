package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func typeName(t Type) string {
	return []string{"invalid", "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32",
		"int64", "uint8", "uint16", "uint32", "uint64", "float8_e4m3", "float8_e5m2"}[t]
}

var narrowTypes = []Type{Float16, BFloat16, Float8E4M3, Float8E5M2}

func widen(t Type, c uint64) float32 {
	switch t {
	case Float16:
		return F16ToF32(uint16(c))
	case BFloat16:
		return BF16ToF32(uint16(c))
	case Float8E4M3:
		return E4M3ToF32(uint8(c))
	}
	return E5M2ToF32(uint8(c))
}

func narrow(t Type, f float32) uint64 {
	switch t {
	case Float16:
		return uint64(F32ToF16(f))
	case BFloat16:
		return uint64(F32ToBF16(f))
	case Float8E4M3:
		return uint64(F32ToE4M3(f))
	}
	return uint64(F32ToE5M2(f))
}

func TestWidenEveryCode(t *testing.T) {
	for _, dt := range narrowTypes {
		t.Run(typeName(dt), func(t *testing.T) {
			for c := range uint64(1) << dumbFormats[dt].bits {
				got, want := math.Float32bits(widen(dt, c)), uint32(dumbWiden(dt, c))
				require.Equal(t, want, got, "code %#x", c)
			}
		})
	}
}

// TestNarrowAtEveryBoundary tries every code's value, every midpoint between neighbours (and
// between the largest value and the overflow), and the float32s beside each of them.
func TestNarrowAtEveryBoundary(t *testing.T) {
	for _, dt := range narrowTypes {
		t.Run(typeName(dt), func(t *testing.T) {
			f := dumbFormats[dt]
			for i, v := range f.finite {
				points := []float64{v}
				if i > 0 {
					points = append(points, (v+f.finite[i-1])/2)
				}
				for _, p := range points {
					if p > math.MaxFloat32 {
						continue
					}
					x := float32(p)
					checkNarrow(t, dt, x)
					checkNarrow(t, dt, math.Nextafter32(x, -1))
					checkNarrow(t, dt, math.Nextafter32(x, float32(math.Inf(1))))
				}
			}
		})
	}
}

func TestNarrowRandomAndSpecial(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dt := range narrowTypes {
		t.Run(typeName(dt), func(t *testing.T) {
			for range 100_000 {
				checkNarrow(t, dt, math.Float32frombits(rng.Uint32()))
			}
			for _, b := range []uint32{0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001,
				0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0x7F81FFFF, 0x7F802000} {
				checkNarrow(t, dt, math.Float32frombits(b))
			}
		})
	}
}

func checkNarrow(t *testing.T, dt Type, x float32) {
	t.Helper()
	for _, b := range []uint32{math.Float32bits(x), math.Float32bits(x) ^ 1<<31} {
		want, got := dumbNarrow(dt, uint64(b)), narrow(dt, math.Float32frombits(b))
		if want != got { // fails fast: require.Equal on every one of the millions of points is slow
			require.Equal(t, fmt.Sprintf("%#x", want), fmt.Sprintf("%#x", got), "float32 %#x", b)
		}
	}
}

// TestOFP8Table checks the values that OFP8 revision 1.0 lists in its table 2.
func TestOFP8Table(t *testing.T) {
	require.EqualValues(t, 448, E4M3ToF32(0x7E))
	require.EqualValues(t, 0x1p-6, E4M3ToF32(0x08))
	require.EqualValues(t, 0.875*0x1p-6, E4M3ToF32(0x07))
	require.EqualValues(t, 0x1p-9, E4M3ToF32(0x01))
	require.True(t, math.IsNaN(float64(E4M3ToF32(0xFF))))
	require.EqualValues(t, 57344, E5M2ToF32(0x7B))
	require.EqualValues(t, 0x1p-14, E5M2ToF32(0x04))
	require.EqualValues(t, 0.75*0x1p-14, E5M2ToF32(0x03))
	require.EqualValues(t, 0x1p-16, E5M2ToF32(0x01))
	require.True(t, math.IsInf(float64(E5M2ToF32(0xFC)), -1))
}

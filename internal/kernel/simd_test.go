//go:build amd64 && !purego && !race

package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// eachISA runs a subtest for every instruction set that this processor has.
func eachISA(t *testing.T, f func(t *testing.T)) {
	all := have
	t.Cleanup(func() { have = all })
	for _, s := range []struct {
		name string
		has  bool
		use  instructions
	}{
		{"avx2", all.avx2, instructions{avx2: true}},
		{"avx512", all.avx512, instructions{avx2: true, avx512: true}},
	} {
		if s.has {
			have = s.use
			t.Run(s.name, f)
		}
	}
}

// TestVectorAgainstGeneric holds the assembly against plain Go, bit for bit, at random lengths that
// reach all loops, random numbers of operands and destinations, offsets, aliasing and stores.
func TestVectorAgainstGeneric(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		eachPair(t, func(t *testing.T, dt Type, op Op, rng *rand.Rand) {
			for range 30 {
				n := rng.IntN(3000)
				nt := rng.IntN(3) == 0
				if nt {
					n += 2 * streamLeast / dt.Size()
				}
				srcs := make([][]byte, 2+rng.IntN(5))
				for i := range srcs {
					srcs[i] = buffer(rng, dt, n)
					fill(rng, dt, srcs[i])
				}
				dsts := make([][]byte, 1+rng.IntN(3))
				for i := range dsts {
					dsts[i] = buffer(rng, dt, n)
				}
				want := make([]byte, n*dt.Size())
				generic(dt, op, [][]byte{want}, srcs)
				if rng.IntN(2) == 0 {
					dsts[0] = srcs[rng.IntN(len(srcs))]
				}
				if foldVector(dt, op, dsts, srcs, nt) {
					for i, d := range dsts {
						requireSame(t, dt, want, d, "destination %d of %d, %d sources, nt %v", i, len(dsts), len(srcs), nt)
					}
				}
			}
		})
	})
}

// TestEveryPairOf16Bits is exhaustive over both operands of float16 and bfloat16 for Sum and Max,
// in steps through the left operand that still meet every exponent.
func TestEveryPairOf16Bits(t *testing.T) {
	b := make([]byte, 2<<16)
	for i := range 1 << 16 {
		putCode(Float16, b, i, uint64(i))
	}
	a, got, want := make([]byte, len(b)), make([]byte, len(b)), make([]byte, len(b))
	eachISA(t, func(t *testing.T) {
		for _, dt := range []Type{Float16, BFloat16} {
			for _, op := range []Op{Sum, Max} {
				for x := 0; x < 1<<16; x += 4093 {
					for i := range 1 << 16 {
						putCode(dt, a, i, uint64(x))
					}
					require.True(t, foldVector(dt, op, [][]byte{got}, [][]byte{a, b}, false))
					generic(dt, op, [][]byte{want}, [][]byte{a, b})
					requireSame(t, dt, want, got, "%s of %#x", opNames[op], x)
				}
			}
		}
	})
}

// TestVectorServes lists what the assembly does not do: a hole elsewhere would only be slow.
func TestVectorServes(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		eachPair(t, func(t *testing.T, dt Type, op Op, rng *rand.Rand) {
			float8 := dt == Float8E4M3 || dt == Float8E5M2
			plainGo := op >= LogicalAnd || float8 && !have.avx512 || dt.Size() == 1 && !float8 && op == Prod
			b := make([]byte, 64)
			require.Equal(t, !plainGo, foldVector(dt, op, [][]byte{b}, [][]byte{b, b}, false))
		})
	})
}

// TestStreamHead checks the place where non-temporal stores may begin.
func TestStreamHead(t *testing.T) {
	mem := make([]byte, 1<<10)
	base := mem[int(-address(mem)%streamAlign):]
	require.Equal(t, 0, streamHead(Float32, [][]byte{base}))
	require.Equal(t, 60, streamHead(Float32, [][]byte{base[4:]}))
	require.Equal(t, 60, streamHead(Float32, [][]byte{base[4:], base[68:]}))
	require.Equal(t, -1, streamHead(Float32, [][]byte{base[4:], base[8:]}))
	require.Equal(t, -1, streamHead(Float32, [][]byte{base[1:]}))
	require.Equal(t, 63, streamHead(Int8, [][]byte{base[1:]}))
}

// TestCopyVector copies to several destinations, past the cache and not.
func TestCopyVector(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		n := rng.IntN(20000)
		src := buffer(rng, Int8, n)
		fill(rng, Int8, src)
		dsts := make([][]byte, 1+rng.IntN(3))
		for i := range dsts {
			dsts[i] = buffer(rng, Int8, n)
		}
		Fold(Int8, Sum, dsts, [][]byte{src}, rng.IntN(2) == 0)
		for i, d := range dsts {
			requireSame(t, Int8, src, d, "destination %d", i)
		}
	}
}

// TestScaleVectorAgainstGeneric holds Scale and Divide against plain Go, bit for bit.
func TestScaleVectorAgainstGeneric(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 11))
	eachISA(t, func(t *testing.T) {
		for _, dt := range []Type{Float16, BFloat16, Float32, Float64, Float8E4M3, Float8E5M2} {
			t.Run(typeName(dt), func(t *testing.T) {
				served := have.avx512 || dt.Size() > 1
				for _, by := range []float64{0.5, 0.75, 1, 0.0078125, 0.51171875, -3, 1e30, math.Inf(-1), math.NaN()} {
					for range 10 {
						n := 1 + rng.IntN(1000)
						src, dst, want := buffer(rng, dt, n), buffer(rng, dt, n), buffer(rng, dt, n)
						fill(rng, dt, src)
						require.Equal(t, served, scaleVector(dt, dst, src, by))
						if served {
							mapFloats(dt, want, src, by, false)
							requireSame(t, dt, want, dst, "scaled by %v", by)
						}
						if served && by > 0 && by <= 1 {
							mapFloats(dt, want, src, by, true)
							require.True(t, divideVector(dt, src, by))
							requireSame(t, dt, want, src, "divided by %v", by)
						}
					}
				}
			})
		}
	})
}

// TestLongFold crosses the bound of one assembly call.
func TestLongFold(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	n := callBytes + 12
	a, b, got, want := make([]byte, n), make([]byte, n), make([]byte, n), make([]byte, n)
	for i := range n {
		a[i], b[i] = byte(rng.Uint32()), byte(rng.Uint32())
	}
	for _, nt := range []bool{false, true} {
		Fold(Int32, Sum, [][]byte{got}, [][]byte{a, b}, nt)
		generic(Int32, Sum, [][]byte{want}, [][]byte{a, b})
		requireSame(t, Int32, want, got, "nt %v", nt)
	}
}

// BenchmarkISA is BenchmarkFold for each instruction set, to see where AVX-512 pays.
func BenchmarkISA(b *testing.B) {
	all := have
	defer func() { have = all }()
	for _, dt := range []Type{Float32, Float64, Float16, BFloat16, Int64} {
		for op := Sum; op <= Max; op++ {
			for _, n := range []int{64 << 10, 4 << 20} {
				have = instructions{avx2: true}
				b.Run("avx2", func(b *testing.B) { benchFold(b, dt, op, 1, 2, n, true, false) })
				have = all
				b.Run("avx512", func(b *testing.B) { benchFold(b, dt, op, 1, 2, n, true, false) })
			}
		}
	}
}

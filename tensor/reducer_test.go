package tensor

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func mustReducer(t require.TestingT, dt DType, op Op, ranks int) *Reducer {
	r, err := NewReducer(dt, op, ranks)
	require.NoError(t, err)
	return r
}

func TestNewReducerRefuses(t *testing.T) {
	custom := Custom("mine", true, func(dst, a, b []float32) {})
	for _, c := range []struct {
		dt    DType
		op    Op
		ranks int
		say   string
	}{
		{Float32, BitAnd, 2, "bitand does not exist for float32"},
		{Float8E4M3, LogicalOr, 2, "logicalor does not exist for float8_e4m3"},
		{Invalid, Sum, 2, "invalid is no element type"},
		{DType(99), Sum, 2, "dtype(99) is no element type"},
		{Float32, Op{}, 2, "zero Op"},
		{Float32, Sum, 0, "0 ranks"},
		{Float32, Sum, 1<<24 + 1, "ranks"},
		{Int8, PreMulSum(0.5), 2, "factor 0.5 is no int8"},
		{Int8, PreMulSum(128), 2, "factor 128 is no int8"},
		{Uint16, PreMulSum(-1), 2, "factor -1 is no uint16"},
		{Int64, PreMulSum(math.NaN()), 2, "factor NaN"},
		{Int64, PreMulSum(math.Inf(1)), 2, "factor +Inf"},
		{Float64, custom, 2, `"mine" is for float32, not float64`},
	} {
		_, err := NewReducer(c.dt, c.op, c.ranks)
		require.ErrorContains(t, err, c.say)
	}
}

func TestEveryOpOfEveryType(t *testing.T) {
	for _, dt := range DTypes() {
		for _, op := range Ops() {
			_, err := NewReducer(dt, op, 3)
			onlyInts := op.Code() >= BitAnd.Code() && op.Code() <= LogicalXor.Code()
			require.Equal(t, dt.Float() && onlyInts, err != nil, "%v %v: %v", dt, op, err)
		}
	}
}

func TestReduceChecksLengths(t *testing.T) {
	r := mustReducer(t, Int32, Sum, 2)
	b := make([]byte, 16)
	require.Panics(t, func() { r.Reduce([][]byte{b[:12]}, [][]byte{b, b}) })
	require.Panics(t, func() { r.Reduce([][]byte{b}, [][]byte{b, b[:12]}) })
	require.Panics(t, func() { r.Reduce([][]byte{b[:7]}, [][]byte{b[:7], b[:7]}) })
}

// run plays a whole reduction: Pre on each rank's slice, Reduce, Post.
func run[T Element](t require.TestingT, op Op, ranks [][]T) []T {
	r := mustReducer(t, TypeOf[T](), op, len(ranks))
	var srcs [][]byte
	for _, s := range ranks {
		own := make([]T, len(s))
		r.Pre(Of(own).Bytes(), Of(s).Bytes())
		srcs = append(srcs, Of(own).Bytes())
	}
	out := make([]T, len(ranks[0]))
	r.Reduce([][]byte{Of(out).Bytes()}, srcs)
	r.Post(Of(out).Bytes())
	return out
}

func TestAvgOfIntegersTruncatesTheWrappedSum(t *testing.T) {
	require.Equal(t, []int32{2, -2, 0}, run(t, Avg, [][]int32{{3, -3, 1}, {2, -2, -1}, {3, -3, 1}}))
	require.Equal(t, []int8{-56 / 2}, run(t, Avg, [][]int8{{100}, {100}}))
	require.Equal(t, []uint64{(1<<64 - 2) / 2}, run(t, Avg, [][]uint64{{1<<64 - 1}, {1<<64 - 1}}))
	many := make([][]int8, 300) // more ranks than an int8 can count
	for i := range many {
		many[i] = []int8{1}
	}
	require.Equal(t, []int8{0}, run(t, Avg, many))
}

func TestAvgOfFloatsDoesNotOverflow(t *testing.T) {
	for ranks := 1; ranks <= 65; ranks++ {
		f32, f64, f16 := make([][]float32, ranks), make([][]float64, ranks), make([][]F16, ranks)
		bf, e4, e5 := make([][]BF16, ranks), make([][]E4M3, ranks), make([][]E5M2, ranks)
		for i := range ranks {
			f32[i], f64[i], f16[i] = []float32{math.MaxFloat32}, []float64{-math.MaxFloat64}, []F16{0x7BFF}
			bf[i], e4[i], e5[i] = []BF16{0x7F7F}, []E4M3{0x7E}, []E5M2{0x7B}
		}
		require.InEpsilon(t, math.MaxFloat32, run(t, Avg, f32)[0], 1e-5)
		require.InEpsilon(t, -math.MaxFloat64, run(t, Avg, f64)[0], 1e-12)
		require.InEpsilon(t, 65504, run(t, Avg, f16)[0].Float32(), 2e-3)
		require.InEpsilon(t, BF16(0x7F7F).Float32(), run(t, Avg, bf)[0].Float32(), 1e-2)
		require.InEpsilon(t, 448, run(t, Avg, e4)[0].Float32(), 0.1, "%d ranks", ranks)
		require.InEpsilon(t, 57344, run(t, Avg, e5)[0].Float32(), 0.2, "%d ranks", ranks)
	}
}

// TestAvgIsCloseToTheMean bounds the error: one rounding of each partial sum (at most ranks−1 of
// them) and one of the quotient, and half a unit of the smallest denormal per scaled contribution.
func TestAvgIsCloseToTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "ranks")
		ranks := make([][]float32, n)
		sum, size := 0.0, 0.0
		for i := range ranks {
			x := rapid.Float32().Draw(t, "x")
			ranks[i] = []float32{x}
			sum += float64(x)
			size += math.Abs(float64(x))
		}
		got := float64(run(t, Avg, ranks)[0])
		require.InDelta(t, sum/float64(n), got, size*0x1p-24*1.01+float64(2*n)*0x1p-149)
	})
}

func TestPreMulSum(t *testing.T) {
	r := mustReducer(t, Float32, PreMulSum(0.25), 2)
	require.True(t, r.HasPre())
	require.False(t, r.HasPost())
	require.Equal(t, []float32{1.25}, run(t, PreMulSum(0.25), [][]float32{{2}, {3}}))
	require.Equal(t, []int16{-15}, run(t, PreMulSum(-3), [][]int16{{2}, {3}}))
	require.Equal(t, []uint64{1 << 63}, run(t, PreMulSum(1<<63), [][]uint64{{2}, {3}}))
}

func TestHasPreAndPost(t *testing.T) {
	for _, c := range []struct {
		dt        DType
		op        Op
		ranks     int
		pre, post bool
	}{
		{Float32, Sum, 3, false, false},
		{Float32, Avg, 1, false, false},
		{Float32, Avg, 4, true, false}, // the scaling alone is the division
		{Float16, Avg, 3, true, true},
		{Int32, Avg, 3, false, true},
	} {
		r := mustReducer(t, c.dt, c.op, c.ranks)
		require.Equal(t, c.pre, r.HasPre(), "%v %v", c.dt, c.op)
		require.Equal(t, c.post, r.HasPost(), "%v %v", c.dt, c.op)
	}
}

// TestCustomKeepsOrder composes affine maps x → ax+b modulo 2³², packed in a uint64: associative,
// not commutative, so that any change of order shows.
func TestCustomKeepsOrder(t *testing.T) {
	after := func(f, g uint64) uint64 { // x → g(f(x))
		fa, fb, ga, gb := uint32(f>>32), uint32(f), uint32(g>>32), uint32(g)
		return uint64(ga*fa)<<32 | uint64(ga*fb+gb)
	}
	op := Custom("compose", false, func(dst, a, b []uint64) {
		for i := range dst {
			dst[i] = after(a[i], b[i])
		}
	})
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		n := rng.IntN(2*scratchBytes/8 + 100)
		srcs := make([][]byte, 1+rng.IntN(5))
		want := make([]uint64, n)
		for j := range srcs {
			vals := make([]uint64, n)
			off := rng.IntN(9)
			srcs[j] = make([]byte, off+8*n)[off:]
			for i := range vals {
				vals[i] = rng.Uint64()
				if j == 0 {
					want[i] = vals[i]
				} else {
					want[i] = after(want[i], vals[i])
				}
			}
			copy(srcs[j], Of(vals).Bytes())
		}
		last := srcs[len(srcs)-1] // in place, on the operand that is read last
		other := make([]byte, 8*n)
		mustReducer(t, Uint64, op, 2).Reduce([][]byte{last, other}, srcs)
		require.Equal(t, Of(want).Bytes(), last)
		require.Equal(t, Of(want).Bytes(), other)
	}
}

func TestReducerDoesNotAllocate(t *testing.T) {
	custom := Custom("max", true, func(dst, a, b []int32) {
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	})
	ops := append(Ops(), PreMulSum(2))
	if !raceEnabled { // under the race detector sync.Pool forgets on purpose
		ops = append(ops, custom)
	}
	for _, op := range ops {
		for _, dt := range DTypes() {
			r, err := NewReducer(dt, op, 3)
			if err != nil {
				continue
			}
			a, b, c := make([]byte, 1000), make([]byte, 1000), make([]byte, 1000)
			require.Zero(t, testing.AllocsPerRun(10, func() {
				r.Pre(a, b)
				r.Reduce([][]byte{a, c}, [][]byte{a, b, c})
				r.Post(a)
			}), "%v %v", dt, op)
		}
	}
}

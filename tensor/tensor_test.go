package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestZeroTensorIsNoTensor(t *testing.T) {
	var zero Tensor
	require.Equal(t, Invalid, zero.DType())
	require.Zero(t, zero.Len())
	require.Empty(t, zero.Bytes())
	require.Equal(t, zero, zero.Slice(0, 0))
	require.Equal(t, "invalid[0]", zero.String())
	require.Equal(t, Disjoint, Compare(zero, zero))
}

func TestOfSharesMemory(t *testing.T) {
	s := []float64{1, 2, 3}
	v := Of(s)
	require.Equal(t, Float64, v.DType())
	require.Equal(t, 3, v.Len())
	require.Equal(t, "float64[3]", v.String())
	require.Equal(t, Host, v.Device())
	clear(v.Slice(1, 2).Bytes())
	require.Equal(t, []float64{1, 0, 3}, s)
	require.Zero(t, Of([]E4M3(nil)).Len())
	require.Panics(t, func() { v.Slice(2, 4) })
	require.Panics(t, func() { v.Slice(-1, 1) })
	require.Panics(t, func() { v.Slice(2, 1) })
}

func TestSliceCannotReachFurther(t *testing.T) {
	b := Of([]int32{1, 2, 3, 4}).Slice(0, 2).Bytes()
	require.Len(t, append(b, 9), 9)
	require.Equal(t, 8, cap(b))
}

func TestFromBytes(t *testing.T) {
	b := make([]byte, 17)
	v, err := FromBytes(Int64, b[1:])
	require.NoError(t, err)
	require.Equal(t, 2, v.Len())
	_, err = FromBytes(Int64, b)
	require.ErrorContains(t, err, "17 bytes")
	_, err = FromBytes(Invalid, b)
	require.ErrorContains(t, err, "invalid")
}

// TestCompareAgainstSets holds Compare against sets of byte positions.
func TestCompareAgainstSets(t *testing.T) {
	mem := make([]byte, 16)
	rapid.Check(t, func(t *rapid.T) {
		cut := func(name string) (Tensor, map[int]bool) {
			lo := rapid.IntRange(0, len(mem)).Draw(t, name+" lo")
			hi := rapid.IntRange(lo, len(mem)).Draw(t, name+" hi")
			set := map[int]bool{}
			for i := lo; i < hi; i++ {
				set[i] = true
			}
			return Of(mem[lo:hi]), set
		}
		a, sa := cut("a")
		b, sb := cut("b")
		common := 0
		for i := range sa {
			if sb[i] {
				common++
			}
		}
		want := Partial
		switch {
		case common == 0:
			want = Disjoint
		case common == len(sa) && common == len(sb):
			want = Same
		}
		require.Equal(t, want, Compare(a, b))
	})
	require.Equal(t, Disjoint, Compare(Of(make([]byte, 8)), Of(make([]byte, 8))))
	require.Equal(t, "same", Same.String())
}

func TestViewsDoNotAllocate(t *testing.T) {
	s := make([]F16, 100)
	b := make([]byte, 200)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		v, _ := FromBytes(Float16, b)
		if Compare(Of(s).Slice(3, 50), v) != Disjoint {
			t.Fail()
		}
	}))
}

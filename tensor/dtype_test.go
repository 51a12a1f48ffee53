package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWireValues pins what goes on the wire: changing one of these breaks peers of another version.
func TestWireValues(t *testing.T) {
	require.Equal(t, []DType{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, []DType{
		Float16, BFloat16, Float32, Float64, Int8, Int16, Int32, Int64,
		Uint8, Uint16, Uint32, Uint64, Float8E4M3, Float8E5M2})
	var codes []uint8
	for _, op := range append(Ops(), PreMulSum(2), Custom("x", true, func(dst, a, b []int8) {})) {
		codes = append(codes, op.Code())
	}
	require.Equal(t, []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 32}, codes)
	require.Equal(t, uint32(0xfd0c5087), Custom("x", true, func(dst, a, b []int8) {}).Hash()) // FNV-1a
}

func TestDTypeNamesAndSizes(t *testing.T) {
	require.Len(t, DTypes(), 14)
	for _, dt := range DTypes() {
		back, err := ParseDType(dt.String())
		require.NoError(t, err)
		require.Equal(t, dt, back)
		require.Contains(t, []int{1, 2, 4, 8}, dt.Size())
	}
	for name, want := range map[string]DType{"half": Float16, "float": Float32, "Double": Float64,
		"bf16": BFloat16, "fp8_e4m3": Float8E4M3, "f8e5m2": Float8E5M2, "INT32": Int32, "uint8": Uint8} {
		got, err := ParseDType(name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"", "invalid", "float31", "complex64"} {
		_, err := ParseDType(name)
		require.ErrorContains(t, err, name)
	}
	require.False(t, Invalid.Valid())
	require.False(t, DType(15).Valid())
	require.Equal(t, "dtype(200)", DType(200).String())
	require.Zero(t, DType(200).Size())
}

func TestTypeOf(t *testing.T) {
	require.Equal(t, DTypes(), []DType{TypeOf[F16](), TypeOf[BF16](), TypeOf[float32](), TypeOf[float64](),
		TypeOf[int8](), TypeOf[int16](), TypeOf[int32](), TypeOf[int64](),
		TypeOf[uint8](), TypeOf[uint16](), TypeOf[uint32](), TypeOf[uint64](), TypeOf[E4M3](), TypeOf[E5M2]()})
}

func TestNarrowElements(t *testing.T) {
	require.EqualValues(t, 1.5, F16From(1.5).Float32())
	require.EqualValues(t, -2, BF16From(-2).Float32())
	require.EqualValues(t, 448, E4M3From(460).Float32())
	require.True(t, math.IsNaN(float64(E4M3From(500).Float32())))
	require.True(t, math.IsInf(float64(E5M2From(70000).Float32()), 1))
}

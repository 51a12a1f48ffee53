package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpNames(t *testing.T) {
	for _, op := range Ops() {
		got, err := ParseOp(op.Name())
		require.NoError(t, err)
		require.Equal(t, op, got)
		require.True(t, op.Valid())
		require.True(t, op.Commutative())
		require.Zero(t, op.Hash())
		require.Equal(t, op.Name(), NameOf(op.Code()))
	}
	for name, want := range map[string]Op{"SUM": Sum, "band": BitAnd, "bor": BitOr, "bxor": BitXor,
		"land": LogicalAnd, "lor": LogicalOr, "lxor": LogicalXor} {
		got, err := ParseOp(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := ParseOp("plus")
	require.ErrorContains(t, err, `"plus"`)
	require.False(t, Op{}.Valid())
	require.Equal(t, "invalid", Op{}.Name())
	require.Equal(t, "custom", NameOf(codeCustom))
}

func TestOpsCompare(t *testing.T) {
	nan := math.NaN()
	require.True(t, PreMulSum(0.5) == PreMulSum(0.5))
	require.True(t, PreMulSum(nan) == PreMulSum(nan))
	require.False(t, PreMulSum(0.5) == PreMulSum(0.25))
	require.False(t, Sum == Avg)
	fn := func(dst, a, b []int32) {}
	c := Custom("first", false, fn)
	require.True(t, c == c)
	require.False(t, c == Custom("first", false, fn))
	require.Equal(t, c.Hash(), Custom("first", false, fn).Hash())
	require.False(t, c.Commutative())
	require.Equal(t, "first", c.Name())
	require.Equal(t, "premulsum(0.5)", PreMulSum(0.5).String())
}

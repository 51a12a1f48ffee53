package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPartsCoverEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, math.MaxInt)).Draw(t, "count")
		parts := rapid.IntRange(1, 200).Draw(t, "parts")
		next, longest := 0, count
		for i := range parts {
			lo, hi := Part(count, parts, i)
			require.Equal(t, next, lo)
			require.Contains(t, []int{count / parts, count/parts + 1}, hi-lo)
			require.LessOrEqual(t, hi-lo, longest, "longer ones first")
			next, longest = hi, hi-lo
		}
		require.Equal(t, count, next)
	})
}

package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPartitionCoversEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, math.MaxInt)).Draw(t, "count")
		p := Partition{count, rapid.IntRange(1, 200).Draw(t, "parts")}
		next := 0
		for i := range p.Parts {
			lo, hi := Part(p.Count, p.Parts, i)
			require.Equal(t, next, lo)
			require.Equal(t, hi-lo, p.Len(i))
			require.Contains(t, []int{p.Count / p.Parts, p.Count/p.Parts + 1}, hi-lo)
			require.LessOrEqual(t, hi-lo, p.MaxLen())
			if hi > lo {
				require.Equal(t, i, p.Find(lo))
				require.Equal(t, i, p.Find(hi-1))
			}
			next = hi
		}
		require.Equal(t, p.Count, next)
	})
}

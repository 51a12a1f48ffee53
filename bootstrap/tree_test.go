package bootstrap

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Seen from all ranks the places are one tree that holds each rank once, is as shallow as promised and
// no wider.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 500).Draw(t, "size")
		wide := rapid.IntRange(1, 70).Draw(t, "fanout")
		for rank := range size {
			p := placeOf(rank, size, wide)
			if (rank == 0) != (p.parent == -1) || p.parent >= rank || len(p.children) > wide || p.first != rank {
				t.Fatalf("rank %d of %d: %+v", rank, size, p)
			}
			if rank > 0 && placeOf(p.parent, size, wide).count <= p.count {
				t.Fatalf("rank %d of %d: %+v", rank, size, p)
			}
			next := rank + 1
			for _, c := range p.children {
				if c.first != next || c.count < 1 || placeOf(c.first, size, wide).parent != rank || placeOf(c.first, size, wide).span != c {
					t.Fatalf("rank %d of %d: child %+v of %+v", rank, size, c, p)
				}
				next += c.count
			}
			if next != p.first+p.count {
				t.Fatalf("rank %d of %d: children end at %d: %+v", rank, size, next, p)
			}
		}
	})
}

func TestTreeDepth(t *testing.T) {
	for size, depth := range map[int]int{1: 0, 2: 1, 64: 1, 65: 2, 1024: 2, 1057: 2, 1058: 3, 33825: 3} {
		deepest := 0
		for rank := range size {
			d := 0
			for r := rank; r > 0; r = placeOf(r, size, fanout(size)).parent {
				d++
			}
			deepest = max(deepest, d)
		}
		require.Equal(t, depth, deepest, "size %d", size)
	}
}

func TestRankList(t *testing.T) {
	for _, c := range []struct {
		ranks []int
		want  string
	}{
		{nil, "no rank"}, {[]int{3}, "rank 3"}, {[]int{3, 4}, "ranks 3-4 (2 of them)"},
		{[]int{0, 1, 2, 5, 7, 8}, "ranks 0-2,5,7-8 (6 of them)"},
	} {
		require.Equal(t, c.want, rankList(c.ranks), fmt.Sprint(c.ranks))
	}
}

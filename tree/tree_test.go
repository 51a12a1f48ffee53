package tree_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/tree"
)

// shapes is what to vary for an algorithm, without roots.
func shapes(info schedule.Info) []schedule.Shape {
	switch info.Name {
	case "tree.AllReduceDouble", "tree.BroadcastDouble", "tree.ReduceDouble":
		return []schedule.Shape{{}, {Pieces: 3}}
	case "tree.Gather", "tree.Scatter":
		return []schedule.Shape{{}, {Radix: 3}, {Radix: 4}}
	}
	return []schedule.Shape{{}, {Radix: 4, Pieces: 2}}
}

// TestVerified holds every algorithm at every size and root against what its Info says.
func TestVerified(t *testing.T) {
	for _, info := range tree.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			for size := 1; size <= 32; size++ {
				for _, shape := range shapes(info) {
					for _, root := range roots(info.Collective, size) {
						shape.Root = root
						rep, err := verify.Check(info.Make, info.Collective, size, shape, verify.Options{})
						require.NoErrorf(t, err, "%d ranks, %+v", size, shape)
						claims(t, info, size, shape, rep)
						if t.Failed() {
							t.Fatalf("%d ranks, %+v", size, shape)
						}
					}
				}
			}
		})
	}
}

// roots is all of them for a few ranks and a sample for many.
func roots(c schedule.Collective, size int) []int {
	switch {
	case !c.Rooted():
		return []int{0}
	case size > 17:
		return []int{0, 1, size / 2, size - 1}
	}
	var all []int
	for r := range size {
		all = append(all, r)
	}
	return all
}

// claims compares an Info with what verification found.
func claims(t *testing.T, info schedule.Info, size int, shape schedule.Shape, rep verify.Report) {
	t.Helper()
	cost := info.Cost(size, shape)
	assert.Equal(t, cost.Steps, rep.Steps, "steps")
	assert.InDelta(t, float64(rep.Sent)/float64(rep.Chunks), cost.Sent, 1e-9, "sent")
	assert.InDelta(t, float64(rep.Reduced)/float64(rep.Chunks), cost.Reduced, 1e-9, "reduced")
	if info.Collective.Reduces() {
		assert.True(t, rep.Ordered || !info.Ordered, "ordered")
		assert.True(t, rep.Canonical || !info.Canonical, "canonical")
	}
	assert.True(t, rep.Uneven || !info.Uneven, "uneven")
	s, err := info.Make(0, size, shape)
	require.NoError(t, err)
	assert.Equal(t, info.InPlace, !s.Disjoint, "in place")
}

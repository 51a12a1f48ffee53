package direct_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
)

// shapes is what to vary for an algorithm, without roots.
func shapes(info schedule.Info) []schedule.Shape {
	switch info.Name {
	case "direct.ScanLinear", "direct.ExscanLinear":
		return []schedule.Shape{{}, {Pieces: 3}}
	case "direct.AllReduceRecursiveDoubling", "direct.AllGatherBruck", "direct.AllToAllBruck":
		return []schedule.Shape{{}, {Radix: 3}, {Radix: 4}}
	case "direct.ReduceScatterPAT", "direct.AllGatherPAT":
		return []schedule.Shape{{}, {Aggregate: 1}, {Aggregate: 2}, {Aggregate: 3}, {Aggregate: 8}}
	}
	return []schedule.Shape{{}}
}

// TestVerified holds every algorithm at every size and root against what its Info says.
func TestVerified(t *testing.T) {
	for _, info := range direct.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			t.Parallel()
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
	assert.LessOrEqual(t, rep.Steps, cost.Steps, "steps")
	if size&(size-1) == 0 && shape.Radix == 0 && tight(info) {
		assert.Equal(t, cost.Steps, rep.Steps, "steps")
	}
	sent, reduced := float64(rep.Sent)/float64(rep.Chunks), float64(rep.Reduced)/float64(rep.Chunks)
	if bound(info) {
		assert.LessOrEqual(t, sent, cost.Sent, "sent")
		assert.LessOrEqual(t, reduced, cost.Reduced, "reduced")
	} else {
		assert.InDelta(t, sent, cost.Sent, 1e-9, "sent")
		assert.InDelta(t, reduced, cost.Reduced, 1e-9, "reduced")
	}
	if info.Collective.Reduces() {
		assert.True(t, rep.Ordered || !info.Ordered, "ordered")
		assert.True(t, rep.Canonical || !info.Canonical, "canonical")
	}
	assert.True(t, rep.Uneven || !info.Uneven, "uneven")
	s, err := info.Make(0, size, shape)
	require.NoError(t, err)
	assert.Equal(t, info.InPlace, !s.Disjoint, "in place")
}

// bound tells whether costs are bounds, because hosts differ in size.
func bound(info schedule.Info) bool {
	switch info.Name {
	case "direct.AllReduceLeaders", "direct.BroadcastTwoLevel", "direct.ReduceTwoLevel":
		return true
	}
	return false
}

// tight tells whether the steps of an Info are exact for powers of two; in the others a rank that
// ends early hides a step.
func tight(info schedule.Info) bool {
	switch info.Name {
	case "direct.ScanDoubling", "direct.ExscanDoubling", "direct.BroadcastScatterAllGather", "direct.BroadcastTwoLevel":
		return false
	}
	return true
}

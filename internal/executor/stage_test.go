package executor

import (
	"testing"

	"github.com/gccl/gccl/schedule"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The spans of all windows are every block, each byte once, and what the steps of a window touch lies in
// its spans.
func TestSpansAreWhatAWindowTouches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.SliceOfN(rapid.IntRange(0, 70), 1, 5).Draw(t, "blocks")
		parts := rapid.IntRange(1, 4).Draw(t, "chunks of a block")
		elem := rapid.SampledFrom([]int{1, 4}).Draw(t, "element")
		lay := Layout{Elem: elem, In: blocks, Window: rapid.IntRange(0, 9).Draw(t, "window")}
		s := schedule.Schedule{In: parts * len(blocks)}
		r := resolver{s: &s, lay: lay}
		require.NoError(t, r.init())
		p := &Plan{Program: &Program{Schedule: s}, Layout: lay, windows: r.windows}
		total := 0
		for _, c := range blocks {
			total += c * elem
		}
		owner := make([]int, total)
		for w := range p.windows {
			p.Spans(schedule.In, w, func(off, n int) {
				for i := off; i < off+n; i++ {
					require.Zero(t, owner[i], "byte %d is in two windows", i)
					owner[i] = w + 1
				}
			})
		}
		require.NotContains(t, owner, 0)
		touched := make([]int, total)
		for w := range p.windows {
			for i := range s.In {
				e := r.chunk(schedule.In, i)
				off, n := e.at(w, elem)
				for b := off; b < off+n; b++ {
					touched[b] = w + 1
				}
			}
		}
		require.Equal(t, owner, touched)
	})
}

package executor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tree"
	"github.com/stretchr/testify/require"
)

// A finished chunk of Out that an Early schedule passes on is placed in the same chunk of the
// peer's Out, so its receiver must expect it there, and alone.
func TestWhatIsPlacedIsReceivedInTheSameChunk(t *testing.T) {
	placed := 0
	for _, info := range slices.Concat(ring.Algorithms(), tree.Algorithms(), direct.Algorithms()) {
		for n := 1; n <= 17; n++ {
			if info.Supports(n, schedule.Shape{}) != nil {
				continue
			}
			all := make([]schedule.Schedule, n)
			for r := range all {
				var err error
				all[r], err = info.Make(r, n, schedule.Shape{})
				require.NoError(t, err)
			}
			placed += checkPlaces(t, info.Name, all)
		}
	}
	require.Positive(t, placed)
}

// channel is a link's direction within a schedule.
type channel struct{ from, to, lane int }

func checkPlaces(t *testing.T, name string, all []schedule.Schedule) (placed int) {
	type sent struct {
		place bool
		span  schedule.Span
	}
	sends := map[channel][]sent{}
	for r := range all {
		if !all[r].Early {
			return 0
		}
		p, err := Compile(all[r])
		require.NoError(t, err)
		for l, groups := range p.lanes {
			for _, g := range groups {
				for _, to := range g.sends {
					c := channel{r, to, l}
					sends[c] = append(sends[c], sent{g.final && g.Dst.Buf == schedule.Out, g.Dst})
				}
			}
		}
	}
	for r := range all {
		p, err := Compile(all[r])
		require.NoError(t, err)
		next := map[channel]int{}
		for l, groups := range p.lanes {
			for _, g := range groups {
				for _, o := range g.operands {
					if !o.recv {
						continue
					}
					c := channel{o.peer, r, l}
					s := sends[c][next[c]]
					next[c]++
					if s.place {
						placed++
						where := fmt.Sprintf("%s, rank %d of %d, from %d", name, r, len(all), o.peer)
						require.Equal(t, s.span, g.Dst, where)
						require.Len(t, g.operands, 1, where)
					}
				}
			}
		}
	}
	return placed
}

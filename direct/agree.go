package direct

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// use is an algorithm, for a collective, as one phase of a composition.
type use struct {
	alg        schedule.Algorithm
	collective schedule.Collective
	ranks      []int   // who runs it together with this rank
	me, root   int     // places among them
	groups     [][]int // all groups that run it, if they may be of other sizes; nil: they are not
	// spread is how many chunks of the whole lie where the phase sees one, each sent by itself; 0: 1.
	spread int
}

// promises is what a composition promises on all ranks alike.
type promises struct {
	ahead       int
	early, lazy bool
}

// agree finds, from what all ranks know, the least number of chunks of a block that every phase can
// divide as it likes, and what the phases promise together. Groups of different sizes may divide
// data differently and promise different things.
func agree(shape schedule.Shape, uses []use) (chunks int, p promises, err error) {
	chunks, p = 1, promises{early: true, lazy: true}
	ahead := make([][3]int, 0, len(uses)) // chunks of a phase, how many of them are a block, spread
	for _, u := range uses {
		groups, seen := u.groups, make(map[int]bool)
		if groups == nil {
			groups = [][]int{u.ranks}
		}
		for _, g := range groups {
			n := len(g)
			if seen[n] {
				continue
			}
			seen[n] = true
			s, err := u.alg(0, n, inner(shape, 0))
			if err != nil {
				return 0, p, fmt.Errorf("direct: part of %d ranks: %w", n, err)
			}
			chunks = lcm(chunks, s.PerBlock())
			ahead = append(ahead, [3]int{s.Ahead, s.PerBlock(), max(1, u.spread)})
			p.early, p.lazy = p.early && s.Early, p.lazy && s.Lazy
		}
	}
	// The phase that is furthest behind decides, and not the sum: links keep the order of phases, so
	// that what a later phase has sent never lies before what an earlier one waits for.
	for _, a := range ahead {
		p.ahead = max(p.ahead, a[0]*(chunks/a[1])*a[2])
	}
	return chunks, p, nil
}

func (p *promises) put(whole *schedule.Schedule) {
	whole.Ahead, whole.Early, whole.Lazy = p.ahead, p.early, p.lazy
}

// lcm is the least common multiple.
func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

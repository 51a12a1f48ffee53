package verify

import (
	"errors"
	"slices"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

// turning is a term whose ranks can be renamed in a circle.
type turning struct {
	// expr names the expression with all ranks counted from its leftmost one, and chunks alike.
	expr  uint64
	first int      // that rank
	set   []uint64 // whose contributions, a bit each
	chunk int      // of In of those who contribute
	depth int
	final bool
}

// circle is the domain of turning terms (machine.Turner) of a symmetric program: of one window.
type circle struct{ head *schedule.Schedule }

// ranks is the set of the ranks [from, to).
func (c *circle) ranks(from, to int) []uint64 {
	set := make([]uint64, (c.head.Size+63)/64)
	for r := from; r < to; r++ {
		set[r/64] |= 1 << (r % 64)
	}
	return set
}

// Input implements machine.Domain, for rank 0.
func (c *circle) Input(_, _, chunk int) turning {
	return turning{expr: mix(0, uint64(chunk)), set: c.ranks(0, 1), chunk: chunk}
}

// Reduce implements machine.Domain.
func (c *circle) Reduce(l, r turning) (turning, error) {
	switch {
	case l.chunk != r.chunk:
		return l, errors.New("mixes two chunks")
	case l.final || r.final:
		return l, errRefinished
	}
	set := slices.Clone(l.set)
	for i, w := range r.set {
		if set[i]&w != 0 {
			return l, errors.New("takes a contribution twice")
		}
		set[i] |= w
	}
	between := uint64((r.first - l.first + c.head.Size) % c.head.Size)
	return turning{
		expr: mix(mix(l.expr, between), r.expr), first: l.first, set: set,
		chunk: l.chunk, depth: 1 + max(l.depth, r.depth),
	}, nil
}

// Finish implements machine.Domain.
func (c *circle) Finish(_ int, v turning) (turning, error) {
	if v.final {
		return v, errRefinished
	}
	if !slices.Equal(v.set, c.ranks(0, c.head.Size)) {
		return v, errors.New("finishes an incomplete result")
	}
	v.final = true
	return v, nil
}

// Turn implements machine.Turner.
func (c *circle) Turn(v turning, by int) turning {
	n := c.head.Size
	set := make([]uint64, len(v.set))
	for r := range n {
		if v.set[r/64]>>(r%64)&1 != 0 {
			to := r + by
			if to >= n {
				to -= n
			}
			set[to/64] |= 1 << (to % 64)
		}
	}
	v.set = set
	v.first = (v.first + by) % n
	v.chunk = machine.Turn(c.head, schedule.In, v.chunk, by)
	return v
}

package collective

import (
	"cmp"
	"slices"

	"github.com/gccl/gccl/tensor"
)

// extent is the memory that a call of a group uses: addresses from up to to.
type extent struct {
	from, to uint64
	call     *Call
	written  bool
}

// apart returns an error where a call of a group writes to what another of its calls uses: nobody knows which of them comes
// first. Tensors of one call may overlap as that call permits.
func (c *Comm) apart(g *grouping, calls []Call) error {
	if len(calls) == 2 && calls[0].Kind == Send && calls[1].Kind == Recv { // SendRecv, in a tenth of the time
		if tensor.Compare(calls[0].Src, calls[1].Dst) != tensor.Disjoint {
			return overlapping(&calls[0], &calls[1])
		}
		return nil
	}
	g.extents = g.extents[:0]
	for i := range calls {
		call := &calls[i]
		dst, src := c.needs(call)
		if dst {
			g.uses(call, call.Dst, true)
		}
		if src {
			g.uses(call, call.Src, false)
		}
	}
	slices.SortFunc(g.extents, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	var all, written furthest
	for i := range g.extents {
		e := &g.extents[i]
		before := written.meets(e)
		if e.written {
			before = all.meets(e)
			written.add(e)
		}
		if before != nil {
			return overlapping(before.call, e.call)
		}
		all.add(e)
	}
	return nil
}

func overlapping(a, b *Call) error {
	return invalid("group: memory of %v overlaps with that of %v, and one of them writes there", *a, *b)
}

func (g *grouping) uses(call *Call, t tensor.Tensor, written bool) {
	if t.Size() > 0 {
		g.extents = append(g.extents, extent{t.Addr(), t.Addr() + uint64(t.Size()), call, written})
	}
}

// furthest are the two extents of different calls that reach furthest, of those added; nil: there is none.
type furthest [2]*extent

func (f *furthest) add(e *extent) {
	switch {
	case f[0] == nil || e.to > f[0].to:
		if f[0] != nil && f[0].call != e.call {
			f[1] = f[0]
		}
		f[0] = e
	case f[0].call != e.call && (f[1] == nil || e.to > f[1].to):
		f[1] = e
	}
}

// meets returns one of another call that reaches into e, which begins behind all that were added.
func (f *furthest) meets(e *extent) *extent {
	for _, o := range f {
		if o != nil && o.call != e.call && o.to > e.from {
			return o
		}
	}
	return nil
}

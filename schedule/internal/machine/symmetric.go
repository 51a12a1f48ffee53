package machine

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// Symmetric is the program of all ranks where every rank r does what rank 0 does with all ranks
// renamed to those r further and all chunks turned by r (see [Turn]), which the caller has made
// sure of: s is the schedule of rank 0.
//
// It has the lanes of rank 0 only. All ranks may run in step, which is one of the orders that a
// run may choose; then what rank 0 receives from rank −d is what it has itself sent to rank d,
// turned by −d. So a link leads from rank 0 to itself, and [Values] need a domain that is a
// [Turner]. [Order] is not for such programs.
func Symmetric(s schedule.Schedule) (*Program, error) {
	if s.Collective.Rooted() || s.Collective == schedule.Scan || s.Collective == schedule.Exscan {
		return nil, fmt.Errorf("%v is not symmetric", s.Collective)
	}
	p := &Program{Heads: make([]schedule.Schedule, 1), first: make([]int32, 2), symmetric: true}
	if err := p.head(0, s.Size, &s); err != nil {
		return nil, err
	}
	p.add(0, &s, make(map[[3]int32]int32), newEnds(s.Size))
	p.resolve()
	return p, nil
}

// Turner is a Domain of values whose ranks and chunks can be renamed.
type Turner[V any] interface {
	Domain[V]
	// Turn renames every rank r in v to r+by modulo the number of ranks, and turns the chunks.
	Turn(v V, by int) V
}

// opposite is −d, modulo the number of ranks.
func (p *Program) opposite(d int) int { return (p.Heads[0].Size - d) % p.Heads[0].Size }

// Turn is the chunk that takes the place of a chunk of In or Out when ranks are renamed to those
// by further. Where a buffer has a block for every rank, blocks are renamed with them; where an
// AllReduce divides into equally many chunks for every rank, so are these; else nothing turns.
func Turn(h *schedule.Schedule, b schedule.Buf, chunk, by int) int {
	of, blocks := h.In, h.Collective.InBlocks(h.Size)
	if b == schedule.Out {
		of, blocks = h.Out, h.Collective.OutBlocks(h.Size)
	}
	if by == 0 || blocks == 1 && h.Collective != schedule.AllReduce || of%h.Size != 0 {
		return chunk
	}
	return (chunk + by*(of/h.Size)) % of
}

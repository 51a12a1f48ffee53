package executor

import (
	"slices"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
)

// leaveMin is the length of Out from which results are written past the cache: their lines would be read before they
// are written, and a cache that holds In and Out of all ranks and what is under way is larger than four times this. Measured with two
// ranks over shared memory, medians: AllGather and ReduceScatter of 16 MiB take 28 and 16 % less, AllReduce is alike;
// of 8 MiB some take less and some more, of 4 MiB more.
const leaveMin = 16 << 20

// readOut tells which chunks of Out some action reads from there; nil if Out is not long.
func (p *Program) readOut(lay *Layout) []bool {
	elems := 0
	for _, n := range lay.Out {
		elems += n
	}
	if elems*lay.Elem < leaveMin {
		return nil
	}
	read := make([]bool, p.Schedule.Out)
	for _, groups := range p.lanes {
		for i := range groups {
			for _, o := range groups[i].operands {
				if !o.recv && o.span.Buf == schedule.Out {
					for c := range o.span.Count {
						read[o.span.First+c] = true
					}
				}
			}
		}
	}
	return read
}

// leaving reports whether the action of a group keeps its value where readOut says that no action reads it. What a
// network brings may have landed there (link.Receiver.Expect).
func (a *action) leaving(g *group, read []bool) bool {
	mapped := !slices.ContainsFunc(a.recvFrom, func(p *link.Peer) bool { return !p.Mapped() })
	return read != nil && mapped && g.Dst.Buf == schedule.Out && a.keeps() && !slices.Contains(read[g.Dst.First:g.Dst.First+g.Dst.Count], true)
}

// leaves reports whether n bytes may be written to dsts[0] past the cache: not where they are read from there.
func (l *lane) leaves(dsts, srcs [][]byte, n int) bool {
	return n >= storeMin && !slices.ContainsFunc(srcs, func(b []byte) bool { return &b[0] == &dsts[0][0] })
}

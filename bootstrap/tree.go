package bootstrap

// Up to starSize ranks all link to the root directly; beyond, each rank of the tree has at most
// wideFanout children, which keeps 1,057 ranks within two hops of the root.
const (
	starSize   = 64
	wideFanout = 32
)

// fanout returns the greatest number of children of a rank.
func fanout(size int) int {
	if size <= starSize {
		return starSize
	}
	return wideFanout
}

// span is the ranks first … first+count−1: those of a subtree, whose top is first.
type span struct{ first, count int }

// place is a rank's place in the tree.
type place struct {
	span            // the rank's own subtree
	parent   int    // −1 at the root
	children []span // their subtrees, ascending
}

// placeOf returns the place of rank in the tree of size ranks.
//
// A subtree is a range of ranks with the lowest at its top; the others are divided evenly into at most
// fanout ranges, its children. Ranges rather than a heap's numbering, because neighbours in rank are
// mostly neighbours on the network too, and because a subtree's contributions then lie side by side.
func placeOf(rank, size, fanout int) place {
	p := place{span: span{0, size}, parent: -1}
	for {
		p.children = divide(p.span, fanout)
		if rank == p.first {
			return p
		}
		for _, c := range p.children {
			if rank < c.first+c.count {
				p.parent, p.span = p.first, c
				break
			}
		}
	}
}

// divide splits a subtree without its top into at most fanout ranges of equal size, give or take one.
func divide(s span, fanout int) []span {
	rest := s.count - 1
	parts := make([]span, min(rest, fanout))
	for i := range parts {
		from, to := i*rest/len(parts), (i+1)*rest/len(parts)
		parts[i] = span{s.first + 1 + from, to - from}
	}
	return parts
}

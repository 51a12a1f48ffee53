package direct

// groups divides size ranks into count groups of neighbours whose sizes differ by one at most,
// larger ones first. Algorithms that need a power of k ranks let one leader of each group take
// part, after it has folded in the others; order of ranks is kept.
type groups struct{ size, count int }

// powerGroups is as many groups as the largest power of k that is not above size.
func powerGroups(size, k int) groups {
	n := 1
	for n*k <= size {
		n *= k
	}
	return groups{size, n}
}

// first is the first rank of group g; first(count) is size.
func (g groups) first(i int) int {
	return i*(g.size/g.count) + min(i, g.size%g.count)
}

func (g groups) len(i int) int { return g.first(i+1) - g.first(i) }

// of is the group of a rank.
func (g groups) of(rank int) int {
	q, more := g.size/g.count, g.size%g.count
	if rank < more*(q+1) {
		return rank / (q + 1)
	}
	return more + (rank-more*(q+1))/q
}

// most is the size of the largest group.
func (g groups) most() int { return g.len(0) }

package tensor

// Partition divides Count elements into Parts consecutive parts whose lengths differ by at most
// one, the longer ones first. Parts is positive, Count is not negative; with Count < Parts the
// last parts are empty. No computation overflows.
type Partition struct{ Count, Parts int }

// Part is the range [lo, hi) of part i.
func (p Partition) Part(i int) (lo, hi int) {
	base, rest := p.Count/p.Parts, p.Count%p.Parts
	lo = base*i + min(i, rest)
	hi = lo + base
	if i < rest {
		hi++
	}
	return lo, hi
}

// Len is the length of part i.
func (p Partition) Len(i int) int {
	lo, hi := p.Part(i)
	return hi - lo
}

// MaxLen is the length of the longest part, which is part 0.
func (p Partition) MaxLen() int { return p.Len(0) }

// Find is the part that holds element e, 0 <= e < Count.
func (p Partition) Find(e int) int {
	base, rest := p.Count/p.Parts, p.Count%p.Parts
	if long := rest * (base + 1); e >= long {
		return rest + (e-long)/base
	}
	return e / (base + 1)
}

// Part is the range [lo, hi) of part i when count elements are divided evenly into parts; see
// [Partition].
func Part(count, parts, i int) (lo, hi int) { return Partition{count, parts}.Part(i) }

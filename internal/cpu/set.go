package cpu

import "math/bits"

// Set is a set of processors: bit i%64 of word i/64 stands for processor i. The zero Set is empty.
type Set []uint64

// Count returns how many processors the set has.
func (s Set) Count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Union returns the processors that are in either set; it keeps neither.
func (s Set) Union(t Set) Set {
	u := make(Set, max(len(s), len(t)))
	copy(u, s)
	for i, w := range t {
		u[i] |= w
	}
	return u
}

// First returns the set of processors 0 to n-1.
func First(n int) Set {
	s := make(Set, (max(0, n)+63)/64)
	for i := range n {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

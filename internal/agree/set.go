package agree

import "math/bits"

// Set is a set of ranks of one group. The zero value belongs to no group; NewSet makes an empty one.
type Set []uint64

// NewSet returns the empty set of ranks 0 … size−1.
func NewSet(size int) Set { return make(Set, (size+63)/64) }

// Has reports whether rank is in s.
func (s Set) Has(rank int) bool { return s[rank/64]>>(rank%64)&1 != 0 }

// Add puts rank into s.
func (s Set) Add(rank int) { s[rank/64] |= 1 << (rank % 64) }

// Unite adds what is in o, a set of the same group, and reports whether that was news.
func (s Set) Unite(o Set) (grew bool) {
	for i, w := range o {
		grew = grew || w&^s[i] != 0
		s[i] |= w
	}
	return grew
}

// Contains reports whether all of o, a set of the same group, is in s.
func (s Set) Contains(o Set) bool {
	for i, w := range o {
		if w&^s[i] != 0 {
			return false
		}
	}
	return true
}

// Equal reports whether s and o, sets of the same group, have the same ranks.
func (s Set) Equal(o Set) bool { return s.Contains(o) && o.Contains(s) }

// Len returns the number of ranks in s.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Clone returns a copy.
func (s Set) Clone() Set { return append(Set(nil), s...) }

// Ranks returns the ranks in s, ascending.
func (s Set) Ranks() []int {
	var out []int
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			out = append(out, 64*i+bits.TrailingZeros64(w))
		}
	}
	return out
}

package direct

import (
	"math/bits"

	"github.com/gccl/gccl/schedule"
)

// PAT, parallel aggregated trees (Jeaugey, arXiv:2506.20252). Block c travels along a binomial tree
// rooted at rank c, the ranks counted from there: v = rank − c modulo p, the parent of v being v
// without its lowest set bit. All p trees run at once and every rank does the same for a given v,
// so messages for different blocks with the same distance go together.
//
// v is h·m + l with 0 ≤ l < m. Trees inside a group of m neighbours are walked depth first, l by l,
// one message holding the blocks of all h, so that log₂ m partial results are alive at a time; the
// trees over groups are walked round by round. m = 1 gives ⌈log₂ p⌉ messages and needs memory for
// p blocks; larger m more messages with fewer blocks and less memory.
//
//	p = 8, m = 2    l = 1: v = 1 3 5 7 in one message to distance 1
//	                l = 0: v = 2 6 to distance 2, then v = 4 to distance 4
type pat struct {
	rank, size, m int
	groups        int   // values of h
	order         []int // the values of h as they lie in memory: bits reversed, so that …
	pos           []int // … the h with the same lowest set bit are neighbours; the inverse of order
	region        []int // region[l]: first scratch chunk of what is here for l; −1: none
	free          []int // regions that were given back
	scratch       int   // chunks of all regions
	lane          schedule.Lane
}

// newPAT divides size ranks so that a message holds at most aggregate blocks (0: no bound).
func newPAT(rank, size, aggregate int) *pat {
	p := &pat{rank: rank, size: size, m: 1}
	if aggregate == 0 {
		aggregate = size
	}
	for (size+p.m-1)/p.m > aggregate {
		p.m *= 2
	}
	p.groups = (size + p.m - 1) / p.m
	p.region = make([]int, p.m)
	for l := range p.region {
		p.region[l] = -1
	}
	width := bits.Len(uint(p.groups - 1))
	p.pos = make([]int, p.groups)
	for i := range 1 << width {
		h := int(bits.Reverse64(uint64(i)) >> (64 - width))
		if width == 0 {
			h = 0
		}
		if h < p.groups {
			p.pos[h] = len(p.order)
			p.order = append(p.order, h)
		}
	}
	return p
}

// block is the block for which this rank has the place v.
func (p *pat) block(v int) int { return (p.rank - v + p.size) % p.size }

// members lists the h that exist for l, in memory order.
func (p *pat) members(l int) []int {
	var hs []int
	for _, h := range p.order {
		if h*p.m+l < p.size {
			hs = append(hs, h)
		}
	}
	return hs
}

// round lists the h of the trees over groups whose lowest set bit is d, in memory order.
func (p *pat) round(d int) []int {
	var hs []int
	for _, h := range p.order {
		if h&-h == d {
			hs = append(hs, h)
		}
	}
	return hs
}

// most is the number of blocks of the longest message.
func (p *pat) most() int {
	if p.m > 1 {
		return p.groups
	}
	return p.groups / 2
}

// release gives the region of l back.
func (p *pat) release(l int) {
	if p.region[l] >= 0 {
		p.free = append(p.free, p.region[l])
		p.region[l] = -1
	}
}

func (p *pat) take() int {
	if n := len(p.free); n > 0 {
		first := p.free[n-1]
		p.free = p.free[:n-1]
		return first
	}
	p.scratch += p.groups
	return p.scratch - p.groups
}

// runs cuts moves between two memories into spans that are neighbours in both: move i goes from
// place a(hs[i]) to place b(hs[i]).
func runs(hs []int, a, b func(h int) int, f func(a, b, count int)) {
	for i := 0; i < len(hs); {
		n := 1
		for i+n < len(hs) && a(hs[i+n]) == a(hs[i])+n && b(hs[i+n]) == b(hs[i])+n {
			n++
		}
		f(a(hs[i]), b(hs[i]), n)
		i += n
	}
}

// at is the place of h in a region.
func (p *pat) at(h int) int { return p.pos[h] }

func (p *pat) above(d int) int { return (p.rank + d) % p.size }
func (p *pat) below(d int) int { return (p.rank - d + p.size) % p.size }

// chunks is the sizes of the scratch memory.
func (p *pat) chunks(b schedule.Buf) []schedule.Chunk {
	cs := make([]schedule.Chunk, p.scratch)
	for i := range cs {
		cs[i].Buf = b
	}
	return cs
}

package verify

import (
	"fmt"
	"hash/maphash"
	"math/bits"

	"github.com/gccl/gccl/schedule"
)

// maxBits is the number of ranks whose contributions a bit set can hold.
const maxBits = 64

// term is what a chunk holds, seen as an expression over the ranks' inputs.
type term struct {
	expr          uint64 // names the exact expression, operands in order: equal expressions, equal names
	set           uint64 // whose contributions: a bit set, or the sum of their weights beyond maxBits ranks
	window, chunk int32  // which chunk of In the contributions are
	first, last   int32  // the leftmost and the rightmost rank of the expression
	depth         int32  // ⊕ on the longest path
	ordered       bool   // the expression names the ranks in increasing order
	final         bool
}

// terms is the domain of expressions (machine.Domain).
type terms struct {
	collective schedule.Collective
	size       int
	weights    []uint64 // beyond maxBits ranks
	sums       []uint64 // sums[r] is the contributions of the ranks below r
}

func newTerms(c schedule.Collective, size int) *terms {
	t := &terms{collective: c, size: size}
	if size > maxBits {
		t.weights = make([]uint64, size)
		for r := range t.weights {
			t.weights[r] = 1 + mix(uint64(r), 0x9e3779b97f4a7c15)%(prime-1)
		}
	}
	t.sums = make([]uint64, size+1)
	for r := range size {
		t.sums[r+1] = t.add(t.sums[r], t.one(r))
	}
	return t
}

// prime is 2⁶¹−1. A sum of contributions that holds one of them twice, or lacks one, equals the
// right sum with a probability of about 2⁻⁶¹.
const prime = 1<<61 - 1

// seed makes names of expressions unpredictable, and so are collisions.
var seed = maphash.MakeSeed()

func mix(a, b uint64) uint64 { return maphash.Comparable(seed, [2]uint64{a, b}) }

func (t *terms) one(rank int) uint64 {
	if t.weights != nil {
		return t.weights[rank]
	}
	return 1 << rank
}

// set is the contributions of the ranks [from, to).
func (t *terms) set(from, to int) uint64 {
	if t.weights == nil {
		return t.sums[to] &^ t.sums[from]
	}
	return (t.sums[to] + prime - t.sums[from]) % prime
}

func (t *terms) add(a, b uint64) uint64 {
	if t.weights == nil {
		return a | b
	}
	return (a + b) % prime
}

// fold names the left fold over the ranks [from, to).
func (t *terms) fold(from, to, window, chunk int) uint64 {
	e := t.Input(from, window, chunk).expr
	for r := from + 1; r < to; r++ {
		e = mix(e, t.Input(r, window, chunk).expr)
	}
	return e
}

// Input implements machine.Domain.
func (t *terms) Input(rank, window, chunk int) term {
	return term{
		expr: mix(uint64(rank)<<32|uint64(window), uint64(chunk)), set: t.one(rank),
		window: int32(window), chunk: int32(chunk),
		first: int32(rank), last: int32(rank), ordered: true,
	}
}

// Reduce implements machine.Domain.
func (t *terms) Reduce(l, r term) (term, error) {
	switch {
	case l.chunk != r.chunk || l.window != r.window:
		return l, fmt.Errorf("mixes chunk %s with chunk %s", l.chunkName(), r.chunkName())
	case l.final || r.final:
		return l, fmt.Errorf("reduces a result that is already finished")
	case t.weights == nil && l.set&r.set != 0:
		return l, fmt.Errorf("takes the contribution of %s twice", ranks(l.set&r.set))
	}
	return term{
		expr: mix(l.expr, r.expr), set: t.add(l.set, r.set),
		window: l.window, chunk: l.chunk,
		first: l.first, last: r.last, depth: 1 + max(l.depth, r.depth),
		ordered: l.ordered && r.ordered && l.last < r.first,
	}, nil
}

// Finish implements machine.Domain.
func (t *terms) Finish(rank int, v term) (term, error) {
	if v.final {
		return v, fmt.Errorf("finishes a result that is already finished")
	}
	if what := t.compare(v, t.set(0, t.size)); what != "" {
		return v, fmt.Errorf("finishes an incomplete result: %s", what)
	}
	v.final = true
	return v, nil
}

// compare says how the contributions of v differ from want, or "".
func (t *terms) compare(v term, want uint64) string {
	missing, extra := want&^v.set, v.set&^want
	switch {
	case v.set == want:
		return ""
	case t.weights != nil:
		return "some contributions are missing or come twice"
	case missing != 0 && extra != 0:
		return fmt.Sprintf("the contribution of %s is missing, that of %s should not be there", ranks(missing), ranks(extra))
	case missing != 0:
		return fmt.Sprintf("the contribution of %s is missing", ranks(missing))
	}
	return fmt.Sprintf("the contribution of %s should not be there", ranks(extra))
}

// ranks writes a bit set: "rank 3" or "ranks 0, 2, 5".
func ranks(set uint64) string {
	text, sep := "rank ", ""
	if bits.OnesCount64(set) > 1 {
		text = "ranks "
	}
	for ; set != 0; set &= set - 1 {
		text += fmt.Sprintf("%s%d", sep, bits.TrailingZeros64(set))
		sep = ", "
	}
	return text
}

func (v term) chunkName() string { return fmt.Sprintf("in[%d] of window %d", v.chunk, v.window) }

// wanted is what out[chunk] of a rank must hold: contributions of which ranks, of which chunk of
// their In. An empty range of ranks: the chunk must not be written.
func wanted(h *schedule.Schedule, rank, chunk int) (from, to, in int) {
	p := h.PerBlock()
	block, piece := chunk/p, chunk%p
	switch h.Collective {
	case schedule.AllReduce, schedule.Reduce:
		return 0, h.Size, chunk
	case schedule.ReduceScatter:
		return 0, h.Size, rank*p + piece
	case schedule.AllGather, schedule.Gather:
		return block, block + 1, piece
	case schedule.Broadcast:
		return h.Root, h.Root + 1, chunk
	case schedule.Scatter:
		return h.Root, h.Root + 1, rank*p + piece
	case schedule.AllToAll:
		return block, block + 1, rank*p + piece
	case schedule.Scan:
		return 0, rank + 1, chunk
	default: // Exscan
		return 0, rank, chunk
	}
}

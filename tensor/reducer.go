package tensor

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gccl/gccl/internal/kernel"
)

// Reducer does the arithmetic of one operation on one element type for a given number of ranks.
//
// A collective applies [Reducer.Pre] to each rank's contribution where HasPre says so, combines
// contributions and partial results by [Reducer.Reduce], and applies [Reducer.Post] once to each
// complete result where HasPost says so. docs/numerics.md says what the numbers are.
//
// Buffers hold whole elements in the machine's byte order, at any alignment. No method allocates,
// and all may be called at once by several goroutines on different destinations.
type Reducer struct {
	t      kernel.Type
	op     kernel.Op
	custom *custom
	enter  func() // around a custom operation; nil: nobody asks
	leave  func()
	pre    scaling
	mul    float64 // pre == scaleFloat
	mulInt int64   // pre == scaleInt
	post   scaling
	div    float64 // post == scaleFloat
	divInt int64   // post == scaleInt
}

type scaling uint8

const (
	scaleNot scaling = iota
	scaleFloat
	scaleInt
)

// maxRanks is where float32 stops holding the number of ranks exactly, which Avg divides by.
const maxRanks = 1 << 24

// NewReducer returns the reducer of op on dt over ranks ranks. It fails where op does not exist
// for dt, or PreMulSum's factor cannot be had in an integer type.
func NewReducer(dt DType, op Op, ranks int) (*Reducer, error) {
	switch {
	case !dt.Valid():
		return nil, fmt.Errorf("tensor: %v is no element type", dt)
	case !op.Valid():
		return nil, fmt.Errorf("tensor: the zero Op is no operation")
	case ranks < 1 || ranks > maxRanks:
		return nil, fmt.Errorf("tensor: %d ranks, want 1 to %d", ranks, maxRanks)
	}
	r := &Reducer{t: kernel.Type(dt), op: kernel.Op(op.code), custom: op.custom}
	switch op.code {
	case codeCustom:
		if op.custom.dt != dt {
			return nil, fmt.Errorf("tensor: custom operation %q is for %v, not %v", op.Name(), op.custom.dt, dt)
		}
	case codeAvg:
		r.op = kernel.Sum
		r.average(ranks)
	case codePreMulSum:
		r.op = kernel.Sum
		if err := r.premultiply(math.Float64frombits(op.scale)); err != nil {
			return nil, err
		}
	default:
		if !kernel.Has(r.t, r.op) {
			return nil, fmt.Errorf("tensor: %v does not exist for %v, only for integers", op, dt)
		}
	}
	return r, nil
}

// average sets up Avg. Integers are summed and divided. Floats are scaled by 2^−k, k = ⌈log₂
// ranks⌉, before the sum and divided by ranks·2^−k, a number in (½, 1], after it: the scaling is
// exact but for denormals, the division rounds once, and where it is by 1 it is left out.
//
// The scaled sum cannot overflow, in whatever order it is made. Write the largest value as 2^e less
// one unit, and B(j) = j·2^(e−k). By induction a sum of j contributions is at most the value next
// below B(j): both summands are, their distances to B add up to more than half a unit at B(a+b),
// and so the sum rounds below it too. It needs every B(j) to be a value of the type, j <= 2^p for
// p significant bits. With more ranks, and in E4M3, whose largest value is two units below 2^e, one
// more bit is kept free.
func (r *Reducer) average(ranks int) {
	if !r.t.Float() {
		r.post, r.divInt = scaleInt, int64(ranks)
		return
	}
	if ranks == 1 {
		return
	}
	k := bits.Len(uint(ranks - 1))
	if k > significantBits(r.t) || r.t == kernel.Float8E4M3 {
		k++
	}
	r.pre, r.mul = scaleFloat, math.Ldexp(1, -k)
	if div := math.Ldexp(float64(ranks), -k); div != 1 {
		r.post, r.div = scaleFloat, div
	}
}

// significantBits is the precision of a float type, the leading 1 included.
func significantBits(t kernel.Type) int {
	switch t {
	case kernel.Float64:
		return 53
	case kernel.Float32:
		return 24
	case kernel.Float16:
		return 11
	case kernel.BFloat16:
		return 8
	case kernel.Float8E4M3:
		return 4
	}
	return 3
}

func (r *Reducer) premultiply(scale float64) error {
	if r.t.Float() {
		r.pre, r.mul = scaleFloat, scale
		return nil
	}
	lo, hi := intRange(r.t)
	if scale != math.Trunc(scale) || scale < lo || scale >= hi {
		return fmt.Errorf("tensor: premulsum factor %v is no %v", scale, DType(r.t))
	}
	r.pre = scaleInt
	if scale >= 1<<63 {
		r.mulInt = int64(uint64(scale))
	} else {
		r.mulInt = int64(scale)
	}
	return nil
}

// intRange is the half-open range of an integer type.
func intRange(t kernel.Type) (lo, hi float64) {
	n := 8 * t.Size()
	if t >= kernel.Uint8 {
		return 0, math.Ldexp(1, n)
	}
	return -math.Ldexp(1, n-1), math.Ldexp(1, n-1)
}

// Reduce sets every destination to ((srcs[0] ⊕ srcs[1]) ⊕ srcs[2]) …, element by element, always in
// that order; one source is copied bit for bit. The 16- and 8-bit floats accumulate in float32 over
// all sources of the call and round once. There is at least one source, and all buffers are equally
// long. A destination may be exactly a source, but must not overlap one otherwise, nor another
// destination.
func (r *Reducer) Reduce(dsts, srcs [][]byte) {
	r.reduce(dsts, srcs, false)
}

// ReduceNT is Reduce with the same result, but writes the destinations past the caches where it
// can (assembly, destinations at the same offset from a cache line). It saves reading each line
// before it is written, and pays where a destination is no source, nobody reads it soon, and the
// call's buffers together exceed the last-level cache: on a Zen 5 core sums and copies are equally
// fast up to 4 MiB a buffer and 1.2 to 1.5 times as fast from 16 MiB on.
func (r *Reducer) ReduceNT(dsts, srcs [][]byte) {
	r.reduce(dsts, srcs, true)
}

func (r *Reducer) reduce(dsts, srcs [][]byte, nt bool) {
	r.check(dsts, srcs)
	if r.custom != nil && len(srcs) > 1 {
		if r.enter != nil {
			r.enter()
			defer r.leave() // also if it panics
		}
		r.custom.fold(dsts, srcs)
		return
	}
	kernel.Fold(r.t, r.op, dsts, srcs, nt)
}

// Watch has enter called before, and leave after, each time that Reduce runs a custom operation, on the same goroutine. It is for
// before the first Reduce.
func (r *Reducer) Watch(enter, leave func()) { r.enter, r.leave = enter, leave }

// check panics where the caller broke the contract: past it, kernels trust the lengths.
func (r *Reducer) check(dsts, srcs [][]byte) {
	n := len(srcs[0])
	if n%r.t.Size() != 0 {
		panic(fmt.Sprintf("tensor: reduce of %d bytes of %v", n, DType(r.t)))
	}
	for _, s := range srcs {
		if len(s) != n {
			panic(fmt.Sprintf("tensor: reduce of sources of %d and %d bytes", n, len(s)))
		}
	}
	for _, d := range dsts {
		if len(d) != n {
			panic(fmt.Sprintf("tensor: reduce of %d bytes to %d", n, len(d)))
		}
	}
}

// HasPre reports whether a rank's contribution must go through Pre before it is combined.
func (r *Reducer) HasPre() bool { return r.pre != scaleNot }

// Pre scales a rank's contribution: dst = scaled src. dst may be src. Without HasPre it copies.
func (r *Reducer) Pre(dst, src []byte) {
	switch r.pre {
	case scaleNot:
		copy(dst, src)
	case scaleFloat:
		kernel.Scale(r.t, dst, src, r.mul)
	case scaleInt:
		kernel.ScaleInt(r.t, dst, src, r.mulInt)
	}
}

// HasPost reports whether a complete result must go through Post.
func (r *Reducer) HasPost() bool { return r.post != scaleNot }

// Post finishes a complete result in place. Without HasPost it does nothing.
func (r *Reducer) Post(b []byte) {
	switch r.post {
	case scaleFloat:
		kernel.Divide(r.t, b, r.div)
	case scaleInt:
		kernel.DivideInt(r.t, b, r.divInt)
	}
}

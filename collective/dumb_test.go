package collective

import (
	"encoding/binary"
	"math"

	"github.com/gccl/gccl/tensor"
)

// The dumb reference: one element at a time, in float64 or int64, over values whose results are
// exact in every type, so that no order of operations can excuse a difference.

// premul is the one operation of the table that scales.
var premul = tensor.PreMulSum(2)

// valueOf is element i of rank r's contribution, scaled. Floats: few ones, so that even fp8 sums are exact;
// products: powers of two of the first ranks.
func valueOf(dt tensor.DType, op tensor.Op, r, i int) int64 {
	switch {
	case op == premul:
		return 2 * valueOf(dt, tensor.Sum, r, i)
	case op == tensor.Prod:
		if r < 3 {
			return int64(1 + (i+r)%2)
		}
		return 1
	case dt.Float() && (op == tensor.Sum || op == tensor.Avg):
		if r < 8 {
			return int64((i + r) % 2)
		}
		return 0
	case dt.Float():
		return int64((i*5+r*3)%7) - 3
	}
	return int64((i*31 + r*17) % 251)
}

// dumb is the reduction of ranks lo to hi−1 out of n at element i.
func dumb(dt tensor.DType, op tensor.Op, lo, hi, n, i int) float64 {
	acc := wrap(dt, valueOf(dt, op, lo, i))
	for r := lo + 1; r < hi; r++ {
		v := wrap(dt, valueOf(dt, op, r, i))
		switch op {
		case tensor.Sum, tensor.Avg, premul:
			acc = wrap(dt, acc+v)
		case tensor.Prod:
			acc = wrap(dt, acc*v)
		case tensor.Min:
			acc = min(acc, v)
		case tensor.Max:
			acc = max(acc, v)
		case tensor.BitAnd:
			acc &= v
		case tensor.BitOr:
			acc |= v
		case tensor.BitXor:
			acc ^= v
		case tensor.LogicalAnd:
			acc = truth(acc != 0 && v != 0)
		case tensor.LogicalOr:
			acc = truth(acc != 0 || v != 0)
		case tensor.LogicalXor:
			acc = truth((acc != 0) != (v != 0))
		}
	}
	if op == tensor.Avg {
		if dt.Float() {
			return float64(acc) / float64(n)
		}
		acc /= int64(n)
	}
	return float64(acc)
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// wrap is v as an element of an integer type holds it.
func wrap(dt tensor.DType, v int64) int64 {
	switch dt {
	case tensor.Int8:
		return int64(int8(v))
	case tensor.Int16:
		return int64(int16(v))
	case tensor.Int32:
		return int64(int32(v))
	case tensor.Uint8:
		return int64(uint8(v))
	case tensor.Uint16:
		return int64(uint16(v))
	case tensor.Uint32:
		return int64(uint32(v))
	}
	return v
}

// encode is a value in the bytes of a type.
func encode(dt tensor.DType, v float64) []byte {
	b := make([]byte, 8)
	switch dt {
	case tensor.Float64:
		binary.NativeEndian.PutUint64(b, math.Float64bits(v))
	case tensor.Float32:
		binary.NativeEndian.PutUint32(b, math.Float32bits(float32(v)))
	case tensor.Float16:
		binary.NativeEndian.PutUint16(b, uint16(tensor.F16From(float32(v))))
	case tensor.BFloat16:
		binary.NativeEndian.PutUint16(b, uint16(tensor.BF16From(float32(v))))
	case tensor.Float8E4M3:
		b[0] = byte(tensor.E4M3From(float32(v)))
	case tensor.Float8E5M2:
		b[0] = byte(tensor.E5M2From(float32(v)))
	default:
		binary.NativeEndian.PutUint64(b, uint64(int64(v)))
	}
	return b[:dt.Size()]
}

// guarded is a tensor with guards of guardBytes or more around it.
type guarded struct {
	t   tensor.Tensor
	all []byte
	off int
}

const (
	guard      = 0xa5
	guardBytes = 64
)

// filled is a tensor of count elements of which element i is f(i), at an odd offset in its memory
// if odd.
func filled(dt tensor.DType, count int, odd bool, f func(i int) float64) guarded {
	g := new(heap).place(dt, count, odd)
	for i := range count {
		copy(g.t.Bytes()[i*dt.Size():], encode(dt, f(i)))
	}
	return g
}

// heap makes guarded tensors of any contents in two pieces of ordinary memory, in turn.
type heap struct {
	bufs [2][]byte
	next int
}

func (h *heap) place(dt tensor.DType, count int, odd bool) guarded {
	g := guarded{off: guardBytes}
	if odd {
		g.off++
	}
	n := count * dt.Size()
	b := &h.bufs[h.next]
	h.next = 1 - h.next
	if len(*b) < n+2*guardBytes+1 {
		*b = make([]byte, n+2*guardBytes+1)
	}
	g.all = (*b)[:g.off+n+guardBytes]
	g.mark(dt, n)
	return g
}

// mark sets the guards and the tensor between them.
func (g *guarded) mark(dt tensor.DType, n int) {
	for i := range g.off {
		g.all[i] = guard
	}
	for i := g.off + n; i < len(g.all); i++ {
		g.all[i] = guard
	}
	g.t, _ = tensor.FromBytes(dt, g.all[g.off:][:n:n])
}

// intact reports whether the bytes around the tensor are as they were.
func (g guarded) intact() bool {
	end := g.off + len(g.t.Bytes())
	for _, b := range g.all[:g.off] {
		if b != guard {
			return false
		}
	}
	for _, b := range g.all[end:] {
		if b != guard {
			return false
		}
	}
	return true
}

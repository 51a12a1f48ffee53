package collective

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sort"

	"github.com/gccl/gccl/tensor"
)

// The reference for the numbers of docs/numerics.md: elements are codes (their bits), one at a time;
// narrow floats are described by their parameters and rounded by search.

// format describes a float type.
type format struct {
	bits, exp, man uint
	ieee           bool      // the highest exponent is for infinities and NaN; else only the code of all ones is special
	finite         []float64 // of a narrow type: the values from 0 up, and one step beyond the largest
}

var formats = map[tensor.DType]*format{
	tensor.Float64:    {bits: 64, exp: 11, man: 52, ieee: true},
	tensor.Float32:    {bits: 32, exp: 8, man: 23, ieee: true},
	tensor.Float16:    narrowFormat(16, 5, 10, true),
	tensor.BFloat16:   narrowFormat(16, 8, 7, true),
	tensor.Float8E4M3: narrowFormat(8, 4, 3, false),
	tensor.Float8E5M2: narrowFormat(8, 5, 2, true),
}

func narrowFormat(bits, exp, man uint, ieee bool) *format {
	f := &format{bits: bits, exp: exp, man: man, ieee: ieee}
	for c := uint64(0); !f.nan(c) && !f.inf(c); c++ {
		f.finite = append(f.finite, f.value(c))
	}
	n := len(f.finite)
	f.finite = append(f.finite, 2*f.finite[n-1]-f.finite[n-2])
	return f
}

func (f *format) signBit() uint64 { return 1 << (f.bits - 1) }
func (f *format) sign(c uint64) uint64 {
	return c & f.signBit()
}
func (f *format) top() uint64           { return (1<<f.exp - 1) << f.man }
func (f *format) quiet(c uint64) uint64 { return c | 1<<(f.man-1) }
func (f *format) inf(c uint64) bool     { return f.ieee && c&^f.signBit() == f.top() }

func (f *format) nan(c uint64) bool {
	if f.ieee {
		return c&^f.signBit() > f.top()
	}
	return c&^f.signBit() == f.signBit()-1
}

// largest is the code of the largest finite value.
func (f *format) largest() uint64 {
	if f.ieee {
		return f.top() - 1
	}
	return f.signBit() - 2
}

// value is the number that a code other than NaN stands for.
func (f *format) value(c uint64) float64 {
	if f.bits == 64 {
		return math.Float64frombits(c)
	}
	bias := 1<<(f.exp-1) - 1
	e, m := int(c&^f.signBit()>>f.man), float64(c&(1<<f.man-1))
	v := math.Ldexp(m, 1-bias-int(f.man))
	switch {
	case f.inf(c):
		v = math.Inf(1)
	case e > 0:
		v = math.Ldexp(m+float64(uint64(1)<<f.man), e-bias-int(f.man))
	}
	return math.Copysign(v, 1-2*float64(f.sign(c)>>(f.bits-1)))
}

// code is the code nearest to a number other than NaN, ties to even.
func (f *format) code(v float64) uint64 {
	switch f.bits {
	case 64:
		return math.Float64bits(v)
	case 32:
		return uint64(math.Float32bits(float32(v)))
	}
	sign := uint64(0)
	if math.Signbit(v) {
		sign, v = f.signBit(), -v
	}
	last := len(f.finite) - 1
	i := min(last, sort.SearchFloat64s(f.finite, v)) // the first that is not below v
	if i > 0 {
		if mid := (f.finite[i-1] + f.finite[i]) / 2; v < mid || v == mid && i%2 == 1 {
			i--
		}
	}
	switch {
	case i < last:
		return sign | uint64(i)
	case f.ieee:
		return sign | f.top()
	}
	return sign | (f.signBit() - 1)
}

// widen is a code of a narrow type as float32.
func (f *format) widen(c uint64) uint64 {
	w := formats[tensor.Float32]
	if f.nan(c) {
		return f.sign(c)<<(32-f.bits) | w.top() | c&(1<<f.man-1)<<(w.man-f.man)
	}
	return w.code(f.value(c))
}

// narrow rounds a float32 to the type.
func (f *format) narrow(c uint64) uint64 {
	w := formats[tensor.Float32]
	switch {
	case !w.nan(c):
		return f.code(w.value(c))
	case f.ieee:
		return w.sign(c)>>(32-f.bits) | f.top() | c&(1<<w.man-1)>>(w.man-f.man)
	}
	return w.sign(c)>>(32-f.bits) | (f.signBit() - 1)
}

// binary is x ⊕ y in a wide type.
func (f *format) binary(op tensor.Op, x, y uint64) uint64 {
	switch {
	case f.nan(x):
		return f.quiet(x)
	case f.nan(y):
		return f.quiet(y)
	}
	a, b := f.value(x), f.value(y)
	var v float64
	switch op {
	case tensor.Min, tensor.Max:
		if less := a < b || a == b && math.Signbit(a); less == (op == tensor.Min) {
			return x
		}
		return y
	case tensor.Prod:
		v = f.round(a*b, float32(a)*float32(b))
	case quotient:
		v = f.round(a/b, float32(a)/float32(b))
	default:
		v = f.round(a+b, float32(a)+float32(b))
	}
	if math.IsNaN(v) {
		return f.signBit() | f.quiet(f.top())
	}
	return f.code(v)
}

// round picks the result in the precision of the type.
func (f *format) round(wide float64, single float32) float64 {
	if f.bits == 64 {
		return wide
	}
	return float64(single)
}

// quotient stands for Avg's division.
var quotient = tensor.Custom("quotient", false, func(_, _, _ []float64) {})

// arithmetic is an operation on an element type among n ranks.
type arithmetic struct {
	dt     tensor.DType
	op     tensor.Op
	n      int
	scales []float64                       // of PreMulSum, by rank
	custom func(left, right uint64) uint64 // of Custom
}

// wide is the format in which a reduction step computes, nil for integers.
func (a *arithmetic) wide() (own, wide *format) {
	own = formats[a.dt]
	if wide = own; own != nil && own.bits < 32 {
		wide = formats[tensor.Float32]
	}
	return own, wide
}

// fold is one reduction step. The narrow types are rounded at its end, once.
func (a *arithmetic) fold(xs []uint64) uint64 {
	acc := xs[0]
	if len(xs) == 1 {
		return acc
	}
	if a.custom != nil {
		for _, x := range xs[1:] {
			acc = a.custom(acc, x)
		}
		return acc
	}
	own, wide := a.wide()
	if own == nil {
		for _, x := range xs[1:] {
			acc = a.integer(acc, x)
		}
		return acc
	}
	if own == wide {
		for _, x := range xs[1:] {
			acc = own.binary(a.op, acc, x)
		}
		return acc
	}
	acc = own.widen(acc)
	for _, x := range xs[1:] {
		acc = wide.binary(a.op, acc, own.widen(x))
	}
	return own.narrow(acc)
}

// times is x·s or x÷s, each rounded to the type.
func (a *arithmetic) times(op tensor.Op, x uint64, s float64) uint64 {
	own, wide := a.wide()
	if own == wide {
		return own.binary(op, x, own.code(s))
	}
	return own.narrow(wide.binary(op, own.widen(x), wide.code(s)))
}

// headroom is the k of Avg's factor 2^−k.
func (a *arithmetic) headroom() int {
	k := bits.Len(uint(a.n - 1))
	if a.dt == tensor.Float8E4M3 || k > int(formats[a.dt].man)+1 {
		k++
	}
	return k
}

// pre is a rank's contribution, scaled.
func (a *arithmetic) pre(rank int, x uint64) uint64 {
	switch {
	case a.scales != nil && a.dt.Float():
		return a.times(tensor.Prod, x, a.scales[rank])
	case a.scales != nil:
		return a.wrap(a.signed(x) * int64(a.scales[rank]))
	case a.op == tensor.Avg && a.dt.Float() && a.n > 1:
		return a.times(tensor.Prod, x, math.Ldexp(1, -a.headroom()))
	}
	return x
}

// post is a complete reduction, finished.
func (a *arithmetic) post(x uint64) uint64 {
	switch {
	case a.op != tensor.Avg:
	case !a.dt.Float() && unsigned(a.dt):
		return x / uint64(a.n)
	case !a.dt.Float():
		return a.wrap(a.signed(x) / int64(a.n))
	case a.n > 1:
		if by := math.Ldexp(float64(a.n), -a.headroom()); by != 1 {
			own := formats[a.dt]
			y := a.times(quotient, x, by)
			if !own.nan(x) && !own.inf(x) && (own.nan(y) || own.inf(y)) {
				return own.sign(x) | own.largest() // a finite sum gives a finite average
			}
			return y
		}
	}
	return x
}

func unsigned(dt tensor.DType) bool {
	return dt == tensor.Uint8 || dt == tensor.Uint16 || dt == tensor.Uint32 || dt == tensor.Uint64
}

// signed is the value of an integer code (as unsigned 64 bits where the type has none).
func (a *arithmetic) signed(x uint64) int64 {
	if s := 64 - 8*a.dt.Size(); !unsigned(a.dt) {
		return int64(x) << s >> s
	}
	return int64(x)
}

func (a *arithmetic) wrap(v int64) uint64 {
	return uint64(v) & (math.MaxUint64 >> (64 - 8*a.dt.Size()))
}

func (a *arithmetic) integer(x, y uint64) uint64 {
	v, w := a.signed(x), a.signed(y)
	less := v < w
	if unsigned(a.dt) {
		less = x < y
	}
	switch a.op {
	case tensor.Prod:
		return a.wrap(v * w)
	case tensor.Min, tensor.Max:
		if less == (a.op == tensor.Min) {
			return x
		}
		return y
	}
	return a.wrap(v + w)
}

// codesOf reads the elements of a tensor's bytes, and bytesOf writes them.
func codesOf(dt tensor.DType, b []byte) []uint64 {
	codes := make([]uint64, len(b)/dt.Size())
	for i := range codes {
		var w [8]byte
		copy(w[:], b[i*dt.Size():][:dt.Size()])
		codes[i] = binary.LittleEndian.Uint64(w[:])
	}
	return codes
}

func bytesOf(dt tensor.DType, codes []uint64) []byte {
	b := make([]byte, 0, len(codes)*dt.Size())
	for _, c := range codes {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], c)
		b = append(b, w[:dt.Size()]...)
	}
	return b
}

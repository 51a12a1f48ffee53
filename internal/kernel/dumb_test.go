package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
	"sort"
)

// The dumb reference: one element at a time, exact arithmetic by math/big, rounding by search.

// dumbFormat describes a float type by its parameters alone.
type dumbFormat struct {
	bits, exp, man uint
	ieee           bool // all-ones exponent is for infinity and NaN; else S.11…1 alone is NaN
	finite         []float64
}

var dumbFormats = map[Type]*dumbFormat{
	Float16:    newDumbFormat(16, 5, 10, true),
	BFloat16:   newDumbFormat(16, 8, 7, true),
	Float32:    {bits: 32, exp: 8, man: 23, ieee: true},
	Float64:    {bits: 64, exp: 11, man: 52, ieee: true},
	Float8E4M3: newDumbFormat(8, 4, 3, false),
	Float8E5M2: newDumbFormat(8, 5, 2, true),
}

// newDumbFormat also lists the values of the codes from 0 on, and one step beyond the largest.
func newDumbFormat(bits, exp, man uint, ieee bool) *dumbFormat {
	f := &dumbFormat{bits: bits, exp: exp, man: man, ieee: ieee}
	code := uint64(0)
	for ; !f.nan(code) && !f.inf(code); code++ {
		f.finite = append(f.finite, f.value(code))
	}
	n := len(f.finite)
	f.finite = append(f.finite, 2*f.finite[n-1]-f.finite[n-2])
	return f
}

func (f *dumbFormat) sign(c uint64) uint64      { return c >> (f.bits - 1) << (f.bits - 1) }
func (f *dumbFormat) magnitude(c uint64) uint64 { return c &^ f.sign(c) }
func (f *dumbFormat) topExp() uint64            { return (1<<f.exp - 1) << f.man }
func (f *dumbFormat) inf(c uint64) bool         { return f.ieee && f.magnitude(c) == f.topExp() }

func (f *dumbFormat) nan(c uint64) bool {
	if f.ieee {
		return f.magnitude(c) > f.topExp()
	}
	return f.magnitude(c) == f.topExp()|(1<<f.man-1)
}

// value is the number that c stands for, by the definition; c is not NaN.
func (f *dumbFormat) value(c uint64) float64 {
	e, m := int(f.magnitude(c)>>f.man), float64(c&(1<<f.man-1))
	bias := 1<<(f.exp-1) - 1
	v := math.Ldexp(m, 1-bias-int(f.man))
	switch {
	case f.inf(c):
		v = math.Inf(1)
	case e > 0:
		v = math.Ldexp(m+float64(uint64(1)<<f.man), e-bias-int(f.man))
	}
	if f.sign(c) != 0 {
		return -v
	}
	return v
}

// quiet is the NaN c with the quiet bit set.
func (f *dumbFormat) quiet(c uint64) uint64 { return c | 1<<(f.man-1) }

// round is the code nearest to the finite float64 v, ties to even codes.
func (f *dumbFormat) round(v float64) uint64 {
	sign := uint64(0)
	if math.Signbit(v) {
		sign, v = 1<<(f.bits-1), -v
	}
	if f.finite == nil {
		if f.bits == 32 {
			return sign | uint64(math.Float32bits(float32(v)))
		}
		return sign | math.Float64bits(v)
	}
	last := len(f.finite) - 1
	i := sort.SearchFloat64s(f.finite, v) // the first that is not below v
	if i > 0 {
		if i > last {
			i = last
		} else if mid := (f.finite[i-1] + f.finite[i]) / 2; v < mid || v == mid && i%2 == 1 {
			i--
		}
	}
	if i == last {
		if f.ieee {
			return sign | f.topExp()
		}
		return sign | f.topExp() | (1<<f.man - 1)
	}
	return sign | uint64(i)
}

// dumbFloat is x ⊕ y for codes of Float32 or Float64.
func dumbFloat(f *dumbFormat, op Op, x, y uint64) uint64 {
	switch {
	case f.nan(x):
		return f.quiet(x)
	case f.nan(y):
		return f.quiet(y)
	}
	vx, vy := f.value(x), f.value(y)
	switch op {
	case Min, Max:
		less := vx < vy || vx == vy && math.Signbit(vx)
		if less == (op == Min) {
			return x
		}
		return y
	}
	special := vx + vy // decides infinities, NaN and the signs of zeros; only then is it right
	if op == Prod {
		special = vx * vy
	}
	if math.IsNaN(special) {
		return 1<<(f.bits-1) | f.quiet(f.topExp())
	}
	if math.IsInf(vx, 0) || math.IsInf(vy, 0) {
		return f.round(special)
	}
	exact := new(big.Float).SetPrec(4096)
	bx, by := big.NewFloat(vx), big.NewFloat(vy)
	if op == Prod {
		exact.Mul(bx, by)
	} else {
		exact.Add(bx, by)
	}
	if exact.Sign() == 0 {
		return f.round(special)
	}
	return dumbRound(f, exact)
}

func dumbRound(f *dumbFormat, exact *big.Float) uint64 {
	if f.bits == 32 {
		v, _ := exact.Float32()
		return uint64(math.Float32bits(v))
	}
	v, _ := exact.Float64()
	return math.Float64bits(v)
}

// dumbInt is x ⊕ y for codes of an integer type, by arithmetic in math/big.
func dumbInt(t Type, op Op, x, y uint64) uint64 {
	bx, by, z := dumbBig(t, x), dumbBig(t, y), new(big.Int)
	truth := func(b bool) *big.Int {
		if b {
			return big.NewInt(1)
		}
		return big.NewInt(0)
	}
	tx, ty := bx.Sign() != 0, by.Sign() != 0
	switch op {
	case Sum:
		z.Add(bx, by)
	case Prod:
		z.Mul(bx, by)
	case Min:
		z = bx
		if by.Cmp(bx) < 0 {
			z = by
		}
	case Max:
		z = bx
		if by.Cmp(bx) > 0 {
			z = by
		}
	case BitAnd:
		z.And(bx, by)
	case BitOr:
		z.Or(bx, by)
	case BitXor:
		z.Xor(bx, by)
	case LogicalAnd:
		z = truth(tx && ty)
	case LogicalOr:
		z = truth(tx || ty)
	case LogicalXor:
		z = truth(tx != ty)
	}
	return dumbWrap(t, z)
}

// dumbBig is the integer that code c stands for.
func dumbBig(t Type, c uint64) *big.Int {
	n := 8 * uint(t.Size())
	z := new(big.Int).SetUint64(c)
	if t < Uint8 && c>>(n-1) != 0 {
		z.Sub(z, new(big.Int).Lsh(big.NewInt(1), n))
	}
	return z
}

// dumbWrap is z modulo the type's range, as a code.
func dumbWrap(t Type, z *big.Int) uint64 {
	m := new(big.Int).Lsh(big.NewInt(1), 8*uint(t.Size()))
	return new(big.Int).Mod(z, m).Uint64()
}

// dumbWiden and dumbNarrow convert codes of narrow floats to codes of Float32 and back.
func dumbWiden(t Type, c uint64) uint64 {
	f, w := dumbFormats[t], dumbFormats[Float32]
	if f.nan(c) {
		sign := f.sign(c) << (32 - f.bits)
		if !f.ieee {
			return sign | w.quiet(w.topExp())
		}
		payload := c & (1<<f.man - 1) << (23 - f.man)
		if t != BFloat16 { // a bfloat16 is only moved; what works on it makes it quiet
			payload = w.quiet(payload)
		}
		return sign | w.topExp() | payload
	}
	return w.round(f.value(c))
}

func dumbNarrow(t Type, c uint64) uint64 {
	f, w := dumbFormats[t], dumbFormats[Float32]
	sign := w.sign(c) >> (32 - f.bits)
	switch {
	case w.nan(c) && f.ieee:
		return sign | f.quiet(f.topExp()|c>>(23-f.man)&(1<<f.man-1))
	case w.nan(c), w.inf(c) && !f.ieee:
		return sign | f.topExp() | (1<<f.man - 1)
	case w.inf(c):
		return sign | f.topExp()
	}
	return f.round(w.value(c))
}

// dumbFold folds one element of every source.
func dumbFold(t Type, op Op, codes []uint64) uint64 {
	if len(codes) == 1 {
		return codes[0]
	}
	narrow := t.Float() && t.Size() < 4
	acc := codes[0]
	if narrow {
		acc = dumbWiden(t, acc)
	}
	for _, c := range codes[1:] {
		switch {
		case narrow:
			acc = dumbFloat(dumbFormats[Float32], op, acc, dumbWiden(t, c))
		case t.Float():
			acc = dumbFloat(dumbFormats[t], op, acc, c)
		default:
			acc = dumbInt(t, op, acc, c)
		}
	}
	if narrow {
		return dumbNarrow(t, acc)
	}
	return acc
}

// getCode and putCode access element i of b.
func getCode(t Type, b []byte, i int) uint64 {
	switch b = b[i*t.Size():]; t.Size() {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func putCode(t Type, b []byte, i int, c uint64) {
	switch b = b[i*t.Size():]; t.Size() {
	case 1:
		b[0] = uint8(c)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(c))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(c))
	default:
		binary.NativeEndian.PutUint64(b, c)
	}
}

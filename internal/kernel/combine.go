package kernel

import "math"

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// combineFloat does acc[i] = acc[i] ⊕ b[i].
func combineFloat[T float32 | float64](op Op, acc, b []T) {
	acc = acc[:len(b)]
	switch op {
	case Sum:
		sumFloat(acc, b)
	case Prod:
		for i, y := range b {
			x := acc[i]
			r := x * y
			if r != r {
				r = nan(x, y)
			}
			acc[i] = r
		}
	case Min:
		for i, y := range b {
			x := acc[i]
			r := min(x, y) // orders −0 below +0 and propagates NaN
			if r != r {
				r = nan(x, y)
			}
			acc[i] = r
		}
	case Max:
		for i, y := range b {
			x := acc[i]
			r := max(x, y)
			if r != r {
				r = nan(x, y)
			}
			acc[i] = r
		}
	}
}

// sumFloat does acc[i] += b[i], eight at a time: their sum is NaN if any of them is.
func sumFloat[T float32 | float64](acc, b []T) {
	for len(b) >= 8 {
		x, y := (*[8]T)(acc), (*[8]T)(b)
		r0, r1, r2, r3 := x[0]+y[0], x[1]+y[1], x[2]+y[2], x[3]+y[3]
		r4, r5, r6, r7 := x[4]+y[4], x[5]+y[5], x[6]+y[6], x[7]+y[7]
		if check := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)); check != check {
			sumEach(x[:], y[:])
		} else {
			x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7] = r0, r1, r2, r3, r4, r5, r6, r7
		}
		acc, b = acc[8:], b[8:]
	}
	sumEach(acc, b)
}

func sumEach[T float32 | float64](acc, b []T) {
	for i, y := range b {
		x := acc[i]
		r := x + y
		if r != r {
			r = nan(x, y)
		}
		acc[i] = r
	}
}

// nan is the NaN that x ⊕ y gives: the left operand's, made quiet, if it is NaN, else the right
// operand's, made quiet, else (∞−∞, 0·∞) the negative quiet NaN without payload. SSE and AVX do
// just that; other processors and compilers that swap operands do not, so it is spelled out.
func nan[T float32 | float64](x, y T) T {
	if x == x {
		x = y
	}
	switch p := any(&x).(type) {
	case *float32:
		if *p == *p {
			*p = math.Float32frombits(0xFFC00000)
		} else {
			*p = math.Float32frombits(math.Float32bits(*p) | 1<<22)
		}
	case *float64:
		if *p == *p {
			*p = math.Float64frombits(0xFFF8000000000000)
		} else {
			*p = math.Float64frombits(math.Float64bits(*p) | 1<<51)
		}
	}
	return x
}

// combineInt does acc[i] = acc[i] ⊕ b[i], wrapping.
func combineInt[T integer](op Op, acc, b []T) {
	acc = acc[:len(b)]
	switch op {
	case Sum:
		for i, y := range b {
			acc[i] += y
		}
	case Prod:
		for i, y := range b {
			acc[i] *= y
		}
	case Min:
		for i, y := range b {
			acc[i] = min(acc[i], y)
		}
	case Max:
		for i, y := range b {
			acc[i] = max(acc[i], y)
		}
	case BitAnd:
		for i, y := range b {
			acc[i] &= y
		}
	case BitOr:
		for i, y := range b {
			acc[i] |= y
		}
	case BitXor:
		for i, y := range b {
			acc[i] ^= y
		}
	case LogicalAnd:
		for i, y := range b {
			acc[i] = truth[T](acc[i] != 0 && y != 0)
		}
	case LogicalOr:
		for i, y := range b {
			acc[i] = truth[T](acc[i] != 0 || y != 0)
		}
	case LogicalXor:
		for i, y := range b {
			acc[i] = truth[T]((acc[i] != 0) != (y != 0))
		}
	}
}

func truth[T integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

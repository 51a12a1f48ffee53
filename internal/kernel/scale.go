package kernel

import "math"

// Scale does dst = src · by for a float type: in float64 for Float64, otherwise in float32 with by
// rounded to float32 first, and then rounded to t. A NaN element stays the NaN it is, made quiet.
// dst may be src.
func Scale(t Type, dst, src []byte, by float64) {
	if !scaleVector(t, dst, src, by) {
		mapFloats(t, dst, src, by, false)
	}
}

// Divide does b = b / by for a float type and by in (0, 1], in the precision of Scale. A finite
// element stays finite: where the quotient overflows it is the largest value of its sign.
func Divide(t Type, b []byte, by float64) {
	if !divideVector(t, b, by) {
		mapFloats(t, b, b, by, true)
	}
}

// mapFloats is Scale or, with over, Divide to dst, in plain Go. It defines the result.
func mapFloats(t Type, dst, src []byte, by float64, over bool) {
	switch t {
	case Float32:
		mapFloat(dst, src, float32(by), float32(largest(t)), over)
	case Float64:
		mapFloat(dst, src, by, largest(t), over)
	default:
		mapNarrow(t, dst, src, float32(by), over)
	}
}

// largest is the largest finite value of a float type.
func largest(t Type) float64 {
	switch t {
	case Float64:
		return math.MaxFloat64
	case Float32:
		return math.MaxFloat32
	case Float16:
		return 65504
	case BFloat16:
		return float64(BF16ToF32(0x7F7F))
	case Float8E4M3:
		return 448
	}
	return 57344
}

func mapFloat[T float32 | float64](dst, src []byte, by, limit T, over bool) {
	var buf [block]T
	step := block * sizeOf[T]()
	for off := 0; off < len(src); off += step {
		a := load(buf[:], src[off:min(off+step, len(src))])
		mapBlock(a, by, limit, over)
		copy(dst[off:], bytesOf(a))
	}
}

// mapNarrow computes in float32 and rounds the outcome to t.
func mapNarrow(t Type, dst, src []byte, by float32, over bool) {
	var buf [block]float32
	step := block * t.Size()
	for off := 0; off < len(src); off += step {
		end := min(off+step, len(src))
		a := buf[:(end-off)/t.Size()]
		decode(t, a, src[off:end])
		mapBlock(a, by, float32(largest(t)), over)
		encode(t, dst[off:end], a)
	}
}

func mapBlock[T float32 | float64](a []T, by, limit T, over bool) {
	if over {
		divide(a, by, limit)
	} else {
		multiply(a, by)
	}
}

func multiply[T float32 | float64](a []T, by T) {
	for i, x := range a {
		r := x * by
		if r != r {
			r = nan(x, by)
		}
		a[i] = r
	}
}

func divide[T float32 | float64](a []T, by, limit T) {
	for i, x := range a {
		r := x / by
		switch {
		case r != r:
			r = nan(x, by)
		case r > limit && x <= limit:
			r = limit
		case r < -limit && x >= -limit:
			r = -limit
		}
		a[i] = r
	}
}

// ScaleInt does dst = src · by for an integer type, wrapping. dst may be src.
func ScaleInt(t Type, dst, src []byte, by int64) {
	eachInt(t, dst, src, by, false)
}

// DivideInt does b = b / by for an integer type, truncated toward zero. by is positive.
func DivideInt(t Type, b []byte, by int64) {
	eachInt(t, b, b, by, true)
}

func eachInt(t Type, dst, src []byte, by int64, over bool) {
	switch t {
	case Int8:
		mapInt[int8](dst, src, by, over)
	case Int16:
		mapInt[int16](dst, src, by, over)
	case Int32:
		mapInt[int32](dst, src, by, over)
	case Int64:
		mapInt[int64](dst, src, by, over)
	case Uint8:
		mapInt[uint8](dst, src, by, over)
	case Uint16:
		mapInt[uint16](dst, src, by, over)
	case Uint32:
		mapInt[uint32](dst, src, by, over)
	case Uint64:
		mapInt[uint64](dst, src, by, over)
	}
}

// mapInt divides in 64 bits, since by may not fit in T.
func mapInt[T integer](dst, src []byte, by int64, over bool) {
	var buf [block]T
	step := block * sizeOf[T]()
	signed := ^T(0) < 0
	for off := 0; off < len(src); off += step {
		a := load(buf[:], src[off:min(off+step, len(src))])
		for i, x := range a {
			switch {
			case !over:
				a[i] = x * T(by)
			case signed:
				a[i] = T(int64(x) / by)
			default:
				a[i] = T(uint64(x) / uint64(by))
			}
		}
		copy(dst[off:], bytesOf(a))
	}
}

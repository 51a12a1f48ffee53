package kernel

// Scale does dst = src · by for a float type: in float64 for Float64, otherwise in float32 with by
// rounded to float32 first, and then rounded to t. A NaN element stays the NaN it is, made quiet.
// dst may be src.
func Scale(t Type, dst, src []byte, by float64) {
	switch t {
	case Float32:
		mapFloat(dst, src, float32(by), times)
	case Float64:
		mapFloat(dst, src, by, times)
	default:
		mapNarrow(t, dst, src, float32(by), times)
	}
}

// Divide does b = b / by for a float type, in the precision of Scale.
func Divide(t Type, b []byte, by float64) {
	switch t {
	case Float32:
		mapFloat(b, b, float32(by), over)
	case Float64:
		mapFloat(b, b, by, over)
	default:
		mapNarrow(t, b, b, float32(by), over)
	}
}

type factor uint8

const (
	times factor = iota
	over
)

func mapFloat[T float32 | float64](dst, src []byte, by T, f factor) {
	var buf [block]T
	step := block * sizeOf[T]()
	for off := 0; off < len(src); off += step {
		a := load(buf[:], src[off:min(off+step, len(src))])
		apply(a, by, f)
		copy(dst[off:], bytesOf(a))
	}
}

func mapNarrow(t Type, dst, src []byte, by float32, f factor) {
	var buf [block]float32
	step := block * t.Size()
	for off := 0; off < len(src); off += step {
		end := min(off+step, len(src))
		a := buf[:(end-off)/t.Size()]
		decode(t, a, src[off:end])
		apply(a, by, f)
		encode(t, dst[off:end], a)
	}
}

func apply[T float32 | float64](a []T, by T, f factor) {
	for i, x := range a {
		var r T
		if f == times {
			r = x * by
		} else {
			r = x / by
		}
		if r != r {
			r = nan(x, by)
		}
		a[i] = r
	}
}

// ScaleInt does dst = src · by for an integer type, wrapping. dst may be src.
func ScaleInt(t Type, dst, src []byte, by int64) {
	eachInt(t, dst, src, by, times)
}

// DivideInt does b = b / by for an integer type, truncated toward zero. by is positive.
func DivideInt(t Type, b []byte, by int64) {
	eachInt(t, b, b, by, over)
}

func eachInt(t Type, dst, src []byte, by int64, f factor) {
	switch t {
	case Int8:
		mapInt[int8](dst, src, by, f)
	case Int16:
		mapInt[int16](dst, src, by, f)
	case Int32:
		mapInt[int32](dst, src, by, f)
	case Int64:
		mapInt[int64](dst, src, by, f)
	case Uint8:
		mapInt[uint8](dst, src, by, f)
	case Uint16:
		mapInt[uint16](dst, src, by, f)
	case Uint32:
		mapInt[uint32](dst, src, by, f)
	case Uint64:
		mapInt[uint64](dst, src, by, f)
	}
}

// mapInt divides in 64 bits, since by may not fit in T.
func mapInt[T integer](dst, src []byte, by int64, f factor) {
	var buf [block]T
	step := block * sizeOf[T]()
	signed := ^T(0) < 0
	for off := 0; off < len(src); off += step {
		a := load(buf[:], src[off:min(off+step, len(src))])
		for i, x := range a {
			switch {
			case f == times:
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

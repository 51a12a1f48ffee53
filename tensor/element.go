package tensor

import "github.com/gccl/gccl/internal/kernel"

// F16 is an IEEE 754 binary16, by its bits.
type F16 uint16

// BF16 is a bfloat16, the upper half of a float32, by its bits.
type BF16 uint16

// E4M3 is an OCP 8-bit float with 4 exponent bits: no infinity, largest value 448.
type E4M3 uint8

// E5M2 is an OCP 8-bit float with 5 exponent bits: infinities, largest value 57344.
type E5M2 uint8

// F16From rounds to the nearest value, ties to even; overflow gives infinity.
func F16From(f float32) F16 { return F16(kernel.F32ToF16(f)) }

// BF16From rounds to the nearest value, ties to even; overflow gives infinity.
func BF16From(f float32) BF16 { return BF16(kernel.F32ToBF16(f)) }

// E4M3From rounds to the nearest value, ties to even; overflow, infinity included, gives NaN.
func E4M3From(f float32) E4M3 { return E4M3(kernel.F32ToE4M3(f)) }

// E5M2From rounds to the nearest value, ties to even; overflow gives infinity.
func E5M2From(f float32) E5M2 { return E5M2(kernel.F32ToE5M2(f)) }

// Float32 is the value of x, exactly.
func (x F16) Float32() float32 { return kernel.F16ToF32(uint16(x)) }

// Float32 is the value of x, exactly.
func (x BF16) Float32() float32 { return kernel.BF16ToF32(uint16(x)) }

// Float32 is the value of x, exactly.
func (x E4M3) Float32() float32 { return kernel.E4M3ToF32(uint8(x)) }

// Float32 is the value of x, exactly.
func (x E5M2) Float32() float32 { return kernel.E5M2ToF32(uint8(x)) }

// Element is the Go types that have a [DType]. Types derived from them are left out on purpose:
// what a named uint16 means (F16? BF16? an integer?) is the caller's to say by a conversion.
type Element interface {
	F16 | BF16 | E4M3 | E5M2 | float32 | float64 |
		int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// TypeOf is the DType of T.
func TypeOf[T Element]() DType {
	var x T
	switch any(x).(type) {
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case E4M3:
		return Float8E4M3
	case E5M2:
		return Float8E5M2
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	}
	return Uint64
}

package tensor

import (
	"fmt"
	"strings"

	"github.com/gccl/gccl/internal/kernel"
)

// DType is an element type. The values are part of the wire format. The zero value is no type.
type DType uint8

// The element types. Float8E4M3 and Float8E5M2 are those of the OCP 8-bit Floating Point
// Specification (torch's float8_e4m3fn and float8_e5m2).
const (
	Invalid    = DType(kernel.Invalid)
	Float16    = DType(kernel.Float16)
	BFloat16   = DType(kernel.BFloat16)
	Float32    = DType(kernel.Float32)
	Float64    = DType(kernel.Float64)
	Int8       = DType(kernel.Int8)
	Int16      = DType(kernel.Int16)
	Int32      = DType(kernel.Int32)
	Int64      = DType(kernel.Int64)
	Uint8      = DType(kernel.Uint8)
	Uint16     = DType(kernel.Uint16)
	Uint32     = DType(kernel.Uint32)
	Uint64     = DType(kernel.Uint64)
	Float8E4M3 = DType(kernel.Float8E4M3)
	Float8E5M2 = DType(kernel.Float8E5M2)
)

var dtypeNames = [...]string{
	Invalid:    "invalid",
	Float16:    "float16",
	BFloat16:   "bfloat16",
	Float32:    "float32",
	Float64:    "float64",
	Int8:       "int8",
	Int16:      "int16",
	Int32:      "int32",
	Int64:      "int64",
	Uint8:      "uint8",
	Uint16:     "uint16",
	Uint32:     "uint32",
	Uint64:     "uint64",
	Float8E4M3: "float8_e4m3",
	Float8E5M2: "float8_e5m2",
}

// DTypes lists the element types in order.
func DTypes() []DType {
	var all []DType
	for dt := Invalid + 1; dt.Valid(); dt++ {
		all = append(all, dt)
	}
	return all
}

// Valid reports whether dt is one of the element types.
func (dt DType) Valid() bool { return dt.Size() > 0 }

// Size is the length of an element in bytes, 0 for no element type.
func (dt DType) Size() int { return kernel.Type(dt).Size() }

// Float reports whether dt is a floating-point type.
func (dt DType) Float() bool { return kernel.Type(dt).Float() }

// String is the name of the type, such as "float32" or "float8_e4m3".
func (dt DType) String() string {
	if int(dt) < len(dtypeNames) {
		return dtypeNames[dt]
	}
	return fmt.Sprintf("dtype(%d)", uint8(dt))
}

// ParseDType returns the type with the given name, in any case: a [DType.String], or the name
// that nccl-tests or torch use (half, float, double, char, fp16, bf16, f8e4m3, float8_e4m3fn, …).
func ParseDType(name string) (DType, error) {
	lower := strings.ToLower(name)
	switch lower {
	case "half", "fp16":
		return Float16, nil
	case "bf16":
		return BFloat16, nil
	case "float", "fp32":
		return Float32, nil
	case "double", "fp64":
		return Float64, nil
	case "char":
		return Int8, nil
	case "int":
		return Int32, nil
	case "fp8_e4m3", "f8e4m3", "float8_e4m3fn":
		return Float8E4M3, nil
	case "fp8_e5m2", "f8e5m2":
		return Float8E5M2, nil
	}
	for dt := Invalid + 1; dt.Valid(); dt++ {
		if dt.String() == lower {
			return dt, nil
		}
	}
	return Invalid, fmt.Errorf("tensor: unknown element type %q", name)
}

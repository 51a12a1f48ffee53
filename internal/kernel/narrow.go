package kernel

import "encoding/binary"

// decode converts the elements in b, of a float type below 32 bits, to dst.
func decode(t Type, dst []float32, b []byte) {
	switch t {
	case Float16:
		for i := range dst {
			dst[i] = F16ToF32(binary.NativeEndian.Uint16(b[2*i:]))
		}
	case BFloat16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.NativeEndian.Uint16(b[2*i:]))
		}
	case Float8E4M3:
		for i := range dst {
			dst[i] = e4m3[b[i]]
		}
	case Float8E5M2:
		for i := range dst {
			dst[i] = e5m2[b[i]]
		}
	}
}

// encode rounds src to the elements in b.
func encode(t Type, b []byte, src []float32) {
	switch t {
	case Float16:
		for i, x := range src {
			binary.NativeEndian.PutUint16(b[2*i:], F32ToF16(x))
		}
	case BFloat16:
		for i, x := range src {
			binary.NativeEndian.PutUint16(b[2*i:], F32ToBF16(x))
		}
	case Float8E4M3:
		for i, x := range src {
			b[i] = F32ToE4M3(x)
		}
	case Float8E5M2:
		for i, x := range src {
			b[i] = F32ToE5M2(x)
		}
	}
}

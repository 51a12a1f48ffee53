package kernel

import "math"

// decode converts the elements in b, of a float type below 32 bits, to dst. Here and in encode the
// normal numbers are dealt with in the loop and the rest by a call, which halves the time. There are
// at most block elements.
func decode(t Type, dst []float32, b []byte) {
	var buf [block]uint16
	switch t {
	case Float16:
		for i, h := range view(buf[:], b) {
			if h&0x7C00-1 < 0x7BFF { // the exponent is neither 0 nor 31
				dst[i] = math.Float32frombits(uint32(h)&0x8000<<16 | uint32(h)&0x7FFF<<13 + 112<<23)
			} else {
				dst[i] = F16ToF32(h)
			}
		}
	case BFloat16:
		for i, h := range view(buf[:], b) {
			dst[i] = BF16ToF32(h)
		}
	case Float8E4M3:
		for i, x := range b {
			dst[i] = e4m3[x]
		}
	case Float8E5M2:
		for i, x := range b {
			dst[i] = e5m2[x]
		}
	}
}

// encode rounds src to the elements in b.
func encode(t Type, b []byte, src []float32) {
	var buf [block]uint16
	switch out := buf[:len(src)]; t {
	case Float16:
		for i, x := range src {
			u := math.Float32bits(x)
			h := uint16(u >> 16 & 0x8000)
			if m := u & 0x7FFFFFFF; m-0x38800000 < 0x477FF000-0x38800000 {
				h |= uint16((m+0xFFF+m>>13&1)>>13 - 112<<10)
			} else {
				h = F32ToF16(x)
			}
			out[i] = h
		}
		copy(b, bytesOf(out))
	case BFloat16:
		for i, x := range src {
			out[i] = F32ToBF16(x)
		}
		copy(b, bytesOf(out))
	case Float8E4M3:
		b = b[:len(src)]
		for i, x := range src {
			u := math.Float32bits(x)
			if m := u & 0x7FFFFFFF; m-0x3C800000 < 0x43E80000-0x3C800000 {
				b[i] = uint8(u>>24&0x80) | uint8((m+0x7FFFF+m>>20&1)>>20-120<<3)
			} else {
				b[i] = F32ToE4M3(x)
			}
		}
	case Float8E5M2:
		b = b[:len(src)]
		for i, x := range src {
			u := math.Float32bits(x)
			if m := u & 0x7FFFFFFF; m-0x38800000 < 0x47700000-0x38800000 {
				b[i] = uint8(u>>24&0x80) | uint8((m+0xFFFFF+m>>21&1)>>21-112<<2)
			} else {
				b[i] = F32ToE5M2(x)
			}
		}
	}
}

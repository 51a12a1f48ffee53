package kernel

import "math"

// The 8-bit floats are those of the OCP 8-bit Floating Point Specification (OFP8), revision 1.0.
// E4M3 has bias 7, no infinity, one NaN per sign (S.1111.111) and 448 as largest value. E5M2 has
// bias 15 and IEEE infinities and NaNs; its largest value is 57344. Conversion follows the
// specification's non-saturating mode: a value that overflows after rounding becomes infinity in
// E5M2 and NaN in E4M3, so that a diverging sum shows instead of sticking at 448.

var e4m3, e5m2 = tables()

// tables lists the value of every code.
func tables() (e4m3, e5m2 [256]float32) {
	for i := range 256 {
		// Both are corners of binary16: E5M2 is its upper byte, and E4M3, moved into its fields, is
		// binary16 less 2⁸ by the difference of the biases.
		e5m2[i] = F16ToF32(uint16(i) << 8)
		e4m3[i] = F16ToF32(uint16(i)&0x80<<8|uint16(i)&0x7F<<7) * 0x1p8
		if i&0x7F == 0x7F {
			e4m3[i] = math.Float32frombits(uint32(i)&0x80<<24 | 0x7FC00000)
		}
	}
	return e4m3, e5m2
}

// E4M3ToF32 converts an OCP E4M3. A NaN keeps its sign.
func E4M3ToF32(x uint8) float32 { return e4m3[x] }

// E5M2ToF32 converts an OCP E5M2. A NaN keeps its sign and payload and becomes quiet.
func E5M2ToF32(x uint8) float32 { return e5m2[x] }

// F32ToE4M3 rounds to the nearest E4M3, ties to even. Infinity, NaN and what rounds to more than
// 448 become the NaN of the same sign.
func F32ToE4M3(f float32) uint8 {
	b := math.Float32bits(f)
	sign, b := uint8(b>>24&0x80), b&0x7FFFFFFF
	switch {
	case b > 0x43E80000: // 464, halfway between 448 and 480; the tie goes to 448
		return sign | 0x7F
	case b < 0x3C800000: // below 2⁻⁶: adding 2¹⁴ puts the units at 2⁻⁹, and the adder rounds
		return sign | uint8(math.Float32bits(math.Float32frombits(b)+0x1p14))
	}
	b += 0x7FFFF + b>>20&1
	return sign | uint8(b>>20-120<<3)
}

// F32ToE5M2 rounds to the nearest E5M2, ties to even; overflow gives infinity, and a NaN keeps its
// sign and the upper bits of its payload and becomes quiet.
func F32ToE5M2(f float32) uint8 {
	b := math.Float32bits(f)
	sign, b := uint8(b>>24&0x80), b&0x7FFFFFFF
	switch {
	case b > 0x7F800000:
		return sign | 0x7E | uint8(b>>21&3)
	case b >= 0x47700000: // 61440, halfway between 57344 and 2¹⁶; the tie goes up
		return sign | 0x7C
	case b < 0x38800000: // below 2⁻¹⁴: adding 2⁷ puts the units at 2⁻¹⁶, and the adder rounds
		return sign | uint8(math.Float32bits(math.Float32frombits(b)+0x1p7))
	}
	b += 0xFFFFF + b>>21&1
	return sign | uint8(b>>21-112<<2)
}

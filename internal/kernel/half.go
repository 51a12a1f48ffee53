package kernel

import "math"

// F16ToF32 converts an IEEE 754 binary16. Every value is exact; a signalling NaN becomes quiet and
// keeps its payload, as VCVTPH2PS does.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	e, m := uint32(h>>10&31), uint32(h&0x3FF)
	switch {
	case e == 31 && m != 0:
		return math.Float32frombits(sign | 0x7FC00000 | m<<13)
	case e == 31:
		return math.Float32frombits(sign | 0x7F800000)
	case e == 0: // zero or denormal: m · 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	}
	return math.Float32frombits(sign | (e+112)<<23 | m<<13)
}

// F32ToF16 rounds to the nearest binary16, ties to even; overflow gives infinity, and a NaN keeps
// its sign and the upper bits of its payload and becomes quiet, as VCVTPS2PH does.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7FFFFFFF
	switch {
	case b > 0x7F800000:
		return sign | 0x7E00 | uint16(b>>13&0x3FF)
	case b >= 0x477FF000: // 65520, halfway between the largest finite value and 2¹⁶
		return sign | 0x7C00
	case b < 0x38800000: // below 2⁻¹⁴: adding ½ puts the units at 2⁻²⁴, and the adder rounds
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3F000000)
	}
	b += 0xFFF + b>>13&1
	return sign | uint16(b>>13-112<<10)
}

// BF16ToF32 converts a bfloat16, the upper half of a float32. Nothing changes, NaN included.
func BF16ToF32(h uint16) float32 {
	return math.Float32frombits(uint32(h) << 16)
}

// F32ToBF16 rounds to the nearest bfloat16, ties to even; overflow gives infinity, denormals are
// kept, and a NaN keeps its sign and the upper bits of its payload and becomes quiet.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7FFFFFFF > 0x7F800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

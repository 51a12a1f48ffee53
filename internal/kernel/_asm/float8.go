package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// float8e5m2 is the upper byte of float16. The layouts of 8-bit floats need AVX-512.
func float8e5m2() *layout {
	e := float8{drop: 21, bias: 112 << 2, normal: 0x38800000, adder: 0x43000000, over: 0x476FFFFF, overflow: 0x7C, nan: 0x7F800000}
	var k float8Constants
	return &layout{
		size: 1, accs: 1, narrow: 4,
		prepare: func(a isa) { k = e.constants(a) },
		decode: func(_ isa, w width, src Op, dst []reg.VecVirtual) {
			half := words(w, src)
			c.VPSLLW(Imm(8), half, half)
			c.VCVTPH2PS(half, dst[0])
		},
		encode: func(_ isa, w width, src []reg.VecVirtual) reg.VecVirtual { return e.encode(k, w, src[0]) },
	}
}

// float8e4m3, moved into float16's fields, is 2⁸ times too small; the NaN code must become a NaN.
func float8e4m3() *layout {
	e := float8{drop: 20, bias: 120 << 3, normal: 0x3C800000, adder: 0x46800000, over: 0x43E80000, overflow: 0x7F}
	var k float8Constants
	var magnitude, beyond, scale reg.VecVirtual
	return &layout{
		size: 1, accs: 1, narrow: 4,
		prepare: func(a isa) {
			k = e.constants(a)
			magnitude, beyond, scale = broadcast(a, 0x3F803F80), broadcast(a, 0x40004000), broadcast(a, 0x43800000)
		},
		decode: func(_ isa, w width, src Op, dst []reg.VecVirtual) {
			half := words(w, src)
			hw := max(w/2, 16)
			sign, nan := hw.new(), c.K()
			c.VPSLLW(Imm(7), half, half)
			c.VPANDND(half, hw.as(magnitude), sign) // at bit 14
			c.VPADDW(sign, sign, sign)
			c.VPANDD(hw.as(magnitude), half, half)
			c.VPCMPEQW(hw.as(magnitude), half, nan)
			c.VPADDW(hw.as(beyond), half, nan, half) // the exponent is 31 now
			c.VPORD(sign, half, half)
			c.VCVTPH2PS(half, dst[0])
			c.VMULPS(w.as(scale), dst[0], dst[0])
		},
		encode: func(_ isa, w width, src []reg.VecVirtual) reg.VecVirtual { return e.encode(k, w, src[0]) },
	}
}

// words widens the bytes of a unit to the words of a fresh register.
func words(w width, src Op) reg.VecVirtual {
	half := max(w/2, 16).new()
	if _, ok := src.(Mem); ok && w == 16 {
		c.VMOVD(src, half) // a unit is four bytes and VPMOVZXBW reads eight
		src = half
	}
	c.VPMOVZXBW(src, half)
	return half
}

// float8 says how a magnitude of float32 bits m is rounded to one of 8 bits, as in package kernel's
// F32ToE4M3 and F32ToE5M2.
type float8 struct {
	drop     uint64 // m's lower bits that go
	bias     uint32 // difference of the biases, in the 8-bit format's place
	normal   uint32 // below it the result is denormal
	adder    uint32 // the float32 that has the smallest denormal as unit
	over     uint32 // beyond it the result is overflow
	overflow uint32
	nan      uint32 // beyond it the result is NaN, m's upper bits; 0 where overflow is NaN
}

type float8Constants struct{ round, denormal, adder, over, overflow, nan reg.VecVirtual }

func (e float8) constants(a isa) float8Constants {
	k := float8Constants{
		round:    broadcast(a, 1<<(e.drop-1)-1-e.bias<<e.drop),
		denormal: broadcast(a, e.normal),
		adder:    broadcast(a, e.adder),
		over:     broadcast(a, e.over),
		overflow: broadcast(a, e.overflow),
	}
	if e.nan != 0 {
		k.nan = broadcast(a, e.nan)
	}
	return k
}

// encode rounds x, which it clobbers, to bytes at the bottom of an XMM register. A NaN in x is quiet.
func (e float8) encode(k float8Constants, w width, x reg.VecVirtual) reg.VecVirtual {
	sign, r := w.new(), w.new()
	c.VPSRLD(Imm(31), x, sign)
	c.VPSLLD(Imm(7), sign, sign)
	c.VPSLLD(Imm(1), x, x)
	c.VPSRLD(Imm(1), x, x)

	c.VPSLLD(Imm(31-e.drop), x, r) // the lowest bit that stays
	c.VPSRLD(Imm(31), r, r)
	c.VPADDD(w.as(k.round), r, r)
	c.VPADDD(x, r, r)
	c.VPSRLD(Imm(e.drop), r, r)

	denormal, over := c.K(), c.K()
	c.VPCMPGTD(x, w.as(k.denormal), denormal)
	c.VADDPS(w.as(k.adder), x, denormal, r)
	c.VPSUBD(w.as(k.adder), r, denormal, r)
	c.VPCMPGTD(w.as(k.over), x, over)
	c.VMOVDQA32(w.as(k.overflow), over, r)
	if e.nan != 0 {
		nan := c.K()
		c.VPCMPGTD(w.as(k.nan), x, nan)
		c.VPSLLD(Imm(e.drop-17), x, x) // the sign and the exponent bits that E5M2 lacks
		c.VPSRLD(Imm(25), x, nan, r)
	}
	c.VPORD(sign, r, r)
	out := width(16).new()
	c.VPMOVDB(r, out)
	return out
}

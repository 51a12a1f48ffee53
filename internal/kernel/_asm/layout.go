package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// layout is how elements lie in memory and in accumulators. A unit is the memory that one set of
// accumulators takes: w/narrow bytes for registers of width w.
type layout struct {
	size     int         // bytes of an element
	accs     int         // registers of a set
	narrow   int         // see unit
	identity bool        // accumulators are memory as it is
	prepare  func(a isa) // loads constants, once a call
	// decode fills a set from a unit in memory, or from one element in an XMM register.
	decode func(a isa, w width, src Op, dst []reg.VecVirtual)
	// encode packs a set, which it may clobber, into one register as it goes to memory.
	encode func(a isa, w width, src []reg.VecVirtual) reg.VecVirtual
}

// unit is the bytes of a unit for registers of width w.
func (l *layout) unit(w width) int { return int(w) / l.narrow }

// plain layouts are computed on as they are.
func plain(size int) *layout {
	return &layout{
		size: size, accs: 1, narrow: 1, identity: true,
		prepare: func(isa) {},
		decode: func(_ isa, w width, src Op, dst []reg.VecVirtual) {
			if r, ok := src.(reg.VecVirtual); ok {
				c.VMOVDQA(r, dst[0])
				return
			}
			w.load(src, dst[0])
		},
		encode: func(_ isa, _ width, src []reg.VecVirtual) reg.VecVirtual { return src[0] },
	}
}

// float16 converts by F16C, which keeps denormals and makes NaN quiet with its payload, as the
// plain Go conversions do.
func float16() *layout {
	return &layout{
		size: 2, accs: 1, narrow: 2,
		prepare: func(isa) {},
		decode:  func(_ isa, _ width, src Op, dst []reg.VecVirtual) { c.VCVTPH2PS(src, dst[0]) },
		encode: func(_ isa, w width, src []reg.VecVirtual) reg.VecVirtual {
			half := max(w/2, 16).new()
			c.VCVTPS2PH(Imm(0), src[0], half) // nearest even, whatever MXCSR says
			return half
		},
	}
}

// bfloat16 splits a vector of elements into those at even and those at odd places, each the upper
// half of a float32 lane; so nothing has to cross lanes. Rounding adds 7FFF, and 1 if the lowest bit
// that stays is set. NaN lanes must not carry into what stays: AVX-512 leaves them out of the sums,
// AVX2 clears their lower half first.
func bfloat16() *layout {
	var high, bias, one, lowest reg.VecVirtual
	return &layout{
		size: 2, accs: 2, narrow: 1,
		prepare: func(a isa) {
			high, bias, one = broadcast(a, 0xFFFF0000), broadcast(a, 0x7FFF), broadcast(a, 1)
			if a.evex() {
				lowest = broadcast(a, 0x10000)
			}
		},
		decode: func(a isa, w width, src Op, dst []reg.VecVirtual) {
			raw := src
			if _, ok := src.(reg.VecVirtual); !ok {
				w.load(src, dst[1])
				raw = dst[1]
			}
			c.VPSLLD(Imm(16), raw, dst[0])
			and(a, w.as(high), raw, dst[1])
		},
		encode: func(a isa, w width, src []reg.VecVirtual) reg.VecVirtual {
			for _, r := range src {
				if a.evex() {
					number, odd := c.K(), c.K()
					c.VCMPPS(Imm(7), r, r, number)
					c.VPTESTMD(w.as(lowest), r, number, odd)
					c.VPADDD(w.as(bias), r, number, r)
					c.VPADDD(w.as(one), r, odd, r)
					continue
				}
				low := w.new()
				c.VCMPPS(Imm(3), r, r, low)
				c.VPSRLD(Imm(16), low, low)
				c.VPANDN(r, low, r)
				c.VPSRLD(Imm(16), r, low)
				c.VPAND(w.as(one), low, low)
				c.VPADDD(w.as(bias), r, r)
				c.VPADDD(low, r, r)
			}
			c.VPSRLD(Imm(16), src[0], src[0])
			if a.evex() {
				c.VPTERNLOGD(Imm(0xF8), w.as(high), src[1], src[0]) // src0 | src1 & high
			} else {
				c.VPBLENDW(Imm(0xAA), src[1], src[0], src[0])
			}
			return src[0]
		},
	}
}

// broadcast fills a register with a 32-bit constant.
func broadcast(a isa, x uint32) reg.VecVirtual {
	g, r := c.GP32(), a.vec.new()
	c.MOVL(U32(x), g)
	c.VMOVD(g, r.AsX())
	c.VPBROADCASTD(r.AsX(), r)
	return r
}

func broadcast64(a isa, x uint64) reg.VecVirtual {
	g, r := c.GP64(), a.vec.new()
	c.MOVQ(U64(x), g)
	c.VMOVQ(g, r.AsX())
	c.VPBROADCASTQ(r.AsX(), r)
	return r
}

func and(a isa, x, y, dst Op) {
	if a.evex() {
		c.VPANDD(x, y, dst)
	} else {
		c.VPAND(x, y, dst)
	}
}

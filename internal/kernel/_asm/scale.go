package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scaleSet is the instructions of Scale and Divide that differ between float32 and float64.
type scaleSet struct {
	mul, div, min, max, and, sub, cmp instruction
	blend                             func(c *build.Context, m, b, x, dst Op)
	single                            bool
}

var singleScale = scaleSet{
	(*context).VMULPS, (*context).VDIVPS, (*context).VMINPS, (*context).VMAXPS, (*context).VANDPS,
	(*context).VSUBPS, (*context).VCMPPS, (*context).VBLENDVPS, true,
}

var doubleScale = scaleSet{
	(*context).VMULPD, (*context).VDIVPD, (*context).VMINPD, (*context).VMAXPD, (*context).VANDPD,
	(*context).VSUBPD, (*context).VCMPPD, (*context).VBLENDVPD, false,
}

// parameter is a float64 argument in every lane, rounded to float32 for the single set.
func (s scaleSet) parameter(a isa, name string) reg.VecVirtual {
	r := a.vec.new()
	c.Load(c.Param(name), r.AsX())
	if s.single {
		c.VCVTSD2SS(r.AsX(), r.AsX(), r.AsX())
		c.VBROADCASTSS(r.AsX(), r)
	} else {
		c.VBROADCASTSD(r.AsX(), r)
	}
	return r
}

// scale is acc · by. The accumulator is the first source, whose NaN wins.
func (s scaleSet) scale() operation {
	var by reg.VecVirtual
	return operation{
		op:      "Scale",
		prepare: func(a isa) { by = s.parameter(a, "by") },
		unary:   func(_ isa, w width, acc reg.VecVirtual) { s.mul(c, w.as(by), acc, acc) },
	}
}

// divide is acc / by, held between −limit and limit where acc is finite.
func (s scaleSet) divide() operation {
	var by, limit, least, size reg.VecVirtual
	return operation{
		op: "Divide",
		prepare: func(a isa) {
			by, limit = s.parameter(a, "by"), s.parameter(a, "limit")
			least = a.vec.new()
			if s.single {
				size = broadcast(a, 1<<31-1) // all but the sign
			} else {
				size = broadcast64(a, 1<<63-1)
			}
			c.VXORPD(least, least, least)
			s.sub(c, limit, least, least)
		},
		unary: func(a isa, w width, acc reg.VecVirtual) {
			finite, held := w.new(), w.new()
			if a.evex() { // single
				k := c.K()
				s.and(c, w.as(size), acc, finite)
				s.cmp(c, Imm(2), w.as(limit), finite, k)
				s.div(c, w.as(by), acc, acc)
				s.min(c, w.as(limit), acc, held)
				s.max(c, w.as(least), held, k, acc)
				return
			}
			s.and(c, w.as(size), acc, finite)
			s.cmp(c, Imm(2), w.as(limit), finite, finite) // |acc| <= limit
			s.div(c, w.as(by), acc, acc)
			s.min(c, w.as(limit), acc, held)
			s.max(c, w.as(least), held, held)
			s.blend(c, finite, held, acc, acc)
		},
	}
}

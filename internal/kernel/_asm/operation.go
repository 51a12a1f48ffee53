package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// operation is ⊕ on vectors: acc = acc ⊕ b. NaN comes out by the rule of the plain Go reference,
// the left operand's if that is NaN, because acc is the first source of every instruction. Without
// combine it works on one source: a copy, or unary, which does acc = f(acc).
type operation struct {
	op      string // of package kernel
	memory  bool   // b may be a memory operand
	prepare func(a isa)
	combine func(a isa, w width, b Op, acc reg.VecVirtual)
	unary   func(a isa, w width, acc reg.VecVirtual)
}

// instruction is a method of avo's Context with the operands b, x, dst: dst = x ⊕ b.
type instruction func(c *build.Context, ops ...Op)

// simple is an operation that is one instruction.
func simple(op string, do instruction) operation {
	return operation{op: op, memory: true, combine: func(_ isa, _ width, b Op, acc reg.VecVirtual) { do(c, b, acc, acc) }}
}

// floatSet is the instructions that differ between float32 and float64.
type floatSet struct {
	add, mul, min, max, or, and, cmp, rng instruction
	blend                                 func(c *build.Context, m, b, x, dst Op)
}

type context = build.Context

var single = floatSet{
	(*context).VADDPS, (*context).VMULPS, (*context).VMINPS, (*context).VMAXPS, (*context).VORPS,
	(*context).VANDPS, (*context).VCMPPS, (*context).VRANGEPS, (*context).VBLENDVPS,
}

var double = floatSet{
	(*context).VADDPD, (*context).VMULPD, (*context).VMINPD, (*context).VMAXPD, (*context).VORPD,
	(*context).VANDPD, (*context).VCMPPD, (*context).VRANGEPD, (*context).VBLENDVPD,
}

func (s floatSet) operations() []operation {
	return []operation{
		simple("Sum", s.add),
		simple("Prod", s.mul),
		s.extreme("Min", s.min, s.or, 4),
		s.extreme("Max", s.max, s.and, 5),
	}
}

// extreme is Min or Max. MINPS returns its second source when both are zero or one is NaN, so it is
// done both ways round: OR of the two is −0 if either is (for Max AND is +0), and lanes with a NaN
// take the sum, which is the NaN that is wanted. VRANGEPS orders zeros by itself.
func (s floatSet) extreme(op string, pick, merge instruction, rng uint64) operation {
	return operation{op: op, combine: func(a isa, w width, b Op, acc reg.VecVirtual) {
		if a.evex() {
			nan, r := c.K(), w.new()
			s.cmp(c, Imm(3), b, acc, nan)
			s.rng(c, Imm(rng), b, acc, r)
			s.add(c, b, acc, nan, r)
			c.VMOVDQA64(r, acc)
			return
		}
		nan, sum, r := w.new(), w.new(), w.new()
		s.cmp(c, Imm(3), b, acc, nan)
		s.add(c, b, acc, sum)
		pick(c, b, acc, r)
		pick(c, acc, b, acc)
		merge(c, r, acc, acc)
		s.blend(c, nan, sum, acc, acc)
	}}
}

// compare64 is Min or Max of 64-bit integers by the signed comparison, which is all that AVX2 has;
// unsigned operands have their top bits flipped for it.
func compare64(op string, unsigned bool) operation {
	var top reg.VecVirtual
	o := operation{op: op}
	if unsigned {
		o.prepare = func(a isa) { top = broadcast64(a, 1<<63) }
	}
	o.combine = func(_ isa, w width, b Op, acc reg.VecVirtual) {
		greater := w.new() // acc > b
		if unsigned {
			flipped := w.new()
			c.VPXOR(w.as(top), b, flipped)
			c.VPXOR(w.as(top), acc, greater)
			c.VPCMPGTQ(flipped, greater, greater)
		} else {
			c.VPCMPGTQ(b, acc, greater)
		}
		if op == "Min" {
			c.VBLENDVPD(greater, b, acc, acc)
		} else {
			c.VBLENDVPD(greater, acc, b, acc)
		}
	}
	return o
}

// multiply64 is the lower half of a 64-bit product, from 32-bit ones where there is no VPMULLQ.
func multiply64() operation {
	return operation{op: "Prod", combine: func(a isa, w width, b Op, acc reg.VecVirtual) {
		if a.evex() {
			c.VPMULLQ(b, acc, acc)
			return
		}
		x, y := w.new(), w.new()
		c.VPSRLQ(Imm(32), b, x)
		c.VPMULUDQ(acc, x, x)
		c.VPSRLQ(Imm(32), acc, y)
		c.VPMULUDQ(b, y, y)
		c.VPADDQ(x, y, y)
		c.VPSLLQ(Imm(32), y, y)
		c.VPMULUDQ(b, acc, acc)
		c.VPADDQ(y, acc, acc)
	}}
}

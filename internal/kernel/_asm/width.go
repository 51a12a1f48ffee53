package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// width is the length of a vector register in bytes: 16, 32 or 64.
type width int

// isa is an instruction set; the generated functions carry its name.
type isa struct {
	name string
	vec  width // the widest vectors that its functions use
}

var (
	avx2   = isa{"AVX2", 32}
	avx512 = isa{"AVX512", 64} // F, BW, DQ and VL
)

func (a isa) evex() bool { return a.vec == 64 }

// new is a fresh register.
func (w width) new() reg.VecVirtual {
	switch w {
	case 16:
		return c.XMM()
	case 32:
		return c.YMM()
	}
	return c.ZMM()
}

// as is the part of r that has w's length.
func (w width) as(r reg.VecVirtual) reg.Register {
	switch w {
	case 16:
		return r.AsX()
	case 32:
		return r.AsY()
	}
	return r.AsZ()
}

func (w width) load(m Op, r reg.VecVirtual) {
	if w == 64 {
		c.VMOVDQU64(m, r)
	} else {
		c.VMOVDQU(m, r)
	}
}

func (w width) store(r reg.VecVirtual, m Op, nt bool) {
	switch {
	case nt:
		c.VMOVNTDQ(r, m)
	case w == 64:
		c.VMOVDQU64(r, m)
	default:
		c.VMOVDQU(r, m)
	}
}

// loadElement and storeElement move one element between memory and the bottom of an XMM register;
// the rest of the register becomes zero.
func loadElement(size int, m Op, x reg.VecVirtual) {
	switch size {
	case 1:
		c.VPXOR(x, x, x)
		c.VPINSRB(Imm(0), m, x, x)
	case 2:
		c.VPXOR(x, x, x)
		c.VPINSRW(Imm(0), m, x, x)
	case 4:
		c.VMOVD(m, x)
	case 8:
		c.VMOVQ(m, x)
	default:
		panic(fmt.Sprint("element of ", size, " bytes"))
	}
}

func storeElement(size int, x reg.VecVirtual, m Op) {
	switch size {
	case 1:
		c.VPEXTRB(Imm(0), x, m)
	case 2:
		c.VPEXTRW(Imm(0), x, m)
	case 4:
		c.VMOVD(x, m)
	case 8:
		c.VMOVQ(x, m)
	}
}

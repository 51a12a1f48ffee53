package main

import (
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sliceBytes is the size of a Go slice header, whose first word is the pointer.
const sliceBytes = 24

// function is the name of f's function for op.
func (f family) function(op operation) string {
	switch {
	case op.unary != nil:
		return strings.ToLower(op.op) + f.name + f.isa.name
	case op.combine == nil:
		return "copy" + f.isa.name
	}
	return "fold" + op.op + f.name + f.isa.name
}

// registers are the general registers of a function: the lists of slice headers, the offset of the
// elements at hand and where they end, and scratch.
type registers struct {
	dsts, dstsEnd, srcs, srcsEnd, off, end, nt, p, q reg.Register
}

// generate builds the function that folds the bytes [off, off+n) of all sources into all
// destinations, or applies a unary operation to the one source. Loops run from wide to narrow: f.big
// units, one unit, one unit of 16-byte vectors, one element. Each reads every source's elements
// before it writes any destination's, so that a destination may be a source. With nt, which needs
// destinations that are aligned to 64 bytes at off, the widest loop stores past the cache.
func (f family) generate(op operation) {
	c.Function(f.function(op))
	c.Attributes(attr.NOSPLIT)
	signature := "dsts, srcs [][]byte, off, n int, nt bool"
	if op.unary != nil {
		signature += ", by, limit float64"
	}
	c.SignatureExpr("func(" + signature + ")")
	c.Pragma("noescape")
	r := f.arguments()
	f.layout.prepare(f.isa)
	if op.prepare != nil {
		op.prepare(f.isa)
	}

	f.loop(op, r, "big", f.isa.vec, f.big)
	f.loop(op, r, "one", f.isa.vec, 1)
	f.loop(op, r, "small", 16, 1)
	f.elements(op, r)

	c.TESTB(r.nt, r.nt)
	c.JZ(LabelRef("done"))
	c.SFENCE()
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}

// arguments loads the arguments; the lengths become ends.
func (f family) arguments() registers {
	r := registers{c.GP64(), c.GP64(), c.GP64(), c.GP64(), c.GP64(), c.GP64(), c.GP8(), c.GP64(), c.GP64()}
	c.Load(c.Param("dsts").Base(), r.dsts)
	c.Load(c.Param("dsts").Len(), r.dstsEnd)
	c.Load(c.Param("srcs").Base(), r.srcs)
	c.Load(c.Param("srcs").Len(), r.srcsEnd)
	c.Load(c.Param("off"), r.off)
	c.Load(c.Param("n"), r.end)
	c.Load(c.Param("nt"), r.nt)
	for _, e := range []struct{ base, end reg.Register }{{r.dsts, r.dstsEnd}, {r.srcs, r.srcsEnd}} {
		c.LEAQ(Mem{Base: e.end, Index: e.end, Scale: 2}, e.end)
		c.LEAQ(Mem{Base: e.base, Index: e.end, Scale: 8}, e.end)
	}
	c.ADDQ(r.off, r.end)
	return r
}

// loop folds units of vectors of width w while so many are left.
func (f family) loop(op operation, r registers, name string, w width, units int) {
	unit := f.layout.unit(w)
	again, done := name, name+"Done"
	c.Label(again)
	c.LEAQ(Mem{Base: r.off, Disp: unit * units}, r.p)
	c.CMPQ(r.p, r.end)
	c.JA(LabelRef(done))

	acc := make([][]reg.VecVirtual, units)
	at := func(i int) Mem { return Mem{Base: r.q, Disp: i * unit} }
	f.first(r)
	for i := range acc {
		acc[i] = f.set(w)
		f.layout.decode(f.isa, w, at(i), acc[i])
	}
	f.others(op, r, name, func() {
		for i := range acc {
			f.combine(op, w, at(i), acc[i])
		}
	})
	for i := range acc {
		f.unary(op, w, acc[i])
	}
	out := make([]reg.VecVirtual, units)
	for i := range acc {
		out[i] = f.layout.encode(f.isa, w, acc[i])
	}
	outWidth := max(w/width(f.layout.narrow), 16)
	if units > 1 {
		c.TESTB(r.nt, r.nt)
		c.JNZ(LabelRef(name + "Stream"))
	}
	f.destinations(r, name+"Store", func() {
		for i := range out {
			f.store(outWidth, unit, out[i], at(i), false)
		}
	})
	if units > 1 {
		c.JMP(LabelRef(name + "Next"))
		c.Label(name + "Stream")
		f.destinations(r, name+"StreamStore", func() {
			for i := range out {
				f.store(outWidth, unit, out[i], at(i), true)
			}
		})
		c.Label(name + "Next")
	}
	c.ADDQ(U32(unit*units), r.off)
	c.JMP(LabelRef(again))
	c.Label(done)
}

// store writes a unit, which may be the lower part of an XMM register.
func (f family) store(w width, unit int, v reg.VecVirtual, m Mem, nt bool) {
	switch unit {
	case 4:
		c.VMOVD(v, m)
	case 8:
		c.VMOVQ(v, m)
	default:
		w.store(v, m, nt)
	}
}

// elements folds what is left, one element at a time in the bottom of XMM registers.
func (f family) elements(op operation, r registers) {
	size := f.layout.size
	c.Label("element")
	c.CMPQ(r.off, r.end)
	c.JAE(LabelRef("elementDone"))
	raw, acc := c.XMM(), f.set(16)
	at := Mem{Base: r.q}
	f.first(r)
	loadElement(size, at, raw)
	f.layout.decode(f.isa, 16, raw, acc)
	f.others(op, r, "element", func() {
		loadElement(size, at, raw)
		operand := f.set(16)
		f.layout.decode(f.isa, 16, raw, operand)
		for i := range acc {
			op.combine(f.isa, 16, operand[i], acc[i])
		}
	})
	f.unary(op, 16, acc)
	out := f.layout.encode(f.isa, 16, acc)
	f.destinations(r, "elementStore", func() { storeElement(size, out, at) })
	c.ADDQ(U32(uint32(size)), r.off)
	c.JMP(LabelRef("element"))
	c.Label("elementDone")
}

// set is a fresh accumulator set.
func (f family) set(w width) []reg.VecVirtual {
	s := make([]reg.VecVirtual, f.layout.accs)
	for i := range s {
		s[i] = w.new()
	}
	return s
}

// combine folds the unit at m into acc.
func (f family) combine(op operation, w width, m Mem, acc []reg.VecVirtual) {
	if f.layout.identity && op.memory {
		op.combine(f.isa, w, m, acc[0])
		return
	}
	operand := f.set(w)
	f.layout.decode(f.isa, w, m, operand)
	for i := range acc {
		op.combine(f.isa, w, operand[i], acc[i])
	}
}

// unary changes acc where the operation has one operand.
func (f family) unary(op operation, w width, acc []reg.VecVirtual) {
	if op.unary == nil {
		return
	}
	for _, r := range acc {
		op.unary(f.isa, w, r)
	}
}

// first points q at the elements of the first source and p at the second source.
func (f family) first(r registers) {
	c.MOVQ(Mem{Base: r.srcs}, r.q)
	c.ADDQ(r.off, r.q)
	c.LEAQ(Mem{Base: r.srcs, Disp: sliceBytes}, r.p)
}

// others runs body with q at the elements of every source from the second on; copies and
// unary operations have none.
func (f family) others(op operation, r registers, name string, body func()) {
	if op.combine == nil {
		return
	}
	f.each(r, name+"Source", r.srcsEnd, body)
}

// destinations runs body with q at the elements of every destination.
func (f family) destinations(r registers, name string, body func()) {
	c.MOVQ(r.dsts, r.p)
	f.each(r, name, r.dstsEnd, body)
}

// each runs body for the slice headers from p to end, of which there is at least one.
func (f family) each(r registers, label string, end reg.Register, body func()) {
	c.Label(label)
	c.MOVQ(Mem{Base: r.p}, r.q)
	c.ADDQ(r.off, r.q)
	body()
	c.ADDQ(Imm(sliceBytes), r.p)
	c.CMPQ(r.p, end)
	c.JB(LabelRef(label))
}

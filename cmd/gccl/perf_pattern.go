package main

import (
	"bytes"

	"github.com/gccl/gccl/tensor"
)

// pattern is the data of a measurement: element i of rank r is (i + 17r) mod 5; of the 8-bit floats, which
// hold few integers, a quarter of that, cut to 0 or 1. So the sums, products and averages of a few dozen
// ranks are exact however they are grouped.
type pattern struct {
	dt tensor.DType
	op tensor.Op
	n  int
}

const period = 5

// value is element i of rank r.
func (p pattern) value(i, r int) float64 {
	v := (i + 17*r) % period
	if p.dt == tensor.Float8E4M3 || p.dt == tensor.Float8E5M2 {
		v /= period - 1
	}
	return float64(v)
}

// encode is the bytes of a value.
func (p pattern) encode(v float64) []byte {
	switch p.dt {
	case tensor.Float32:
		return tensor.Of([]float32{float32(v)}).Bytes()
	case tensor.Float64:
		return tensor.Of([]float64{v}).Bytes()
	case tensor.Float16:
		return tensor.Of([]tensor.F16{tensor.F16From(float32(v))}).Bytes()
	case tensor.BFloat16:
		return tensor.Of([]tensor.BF16{tensor.BF16From(float32(v))}).Bytes()
	case tensor.Float8E4M3:
		return tensor.Of([]tensor.E4M3{tensor.E4M3From(float32(v))}).Bytes()
	case tensor.Float8E5M2:
		return tensor.Of([]tensor.E5M2{tensor.E5M2From(float32(v))}).Bytes()
	}
	b := make([]byte, p.dt.Size())
	for i := range b {
		b[i] = byte(int64(v) >> (8 * i))
	}
	return b
}

// lap is one period of values, encoded.
func (p pattern) lap(value func(phase int) []byte) []byte {
	var b []byte
	for i := range period {
		b = append(b, value(i)...)
	}
	return b
}

func (p pattern) of(r int) []byte {
	return p.lap(func(i int) []byte { return p.encode(p.value(i, r)) })
}

// reduced is the reduction of the first k ranks, computed by the library's own reference kernels on
// one element at a time.
func (p pattern) reduced(k int) []byte {
	red, err := tensor.NewReducer(p.dt, p.op, p.n)
	if err != nil {
		panic(err) // the measurement has made the same reducer before
	}
	return p.lap(func(i int) []byte {
		var srcs [][]byte
		for r := range k {
			b := p.encode(p.value(i, r))
			red.Pre(b, b)
			srcs = append(srcs, b)
		}
		out := make([]byte, p.dt.Size())
		red.Reduce([][]byte{out}, srcs)
		red.Post(out)
		return out
	})
}

// put writes rank r's data from index off on.
func (p pattern) put(t tensor.Tensor, off, r int) { repeat(t.Bytes(), p.of(r), off%period*p.dt.Size()) }

// repeat fills b with laps, beginning at a phase of the first.
func repeat(b, lap []byte, phase int) {
	long := bytes.Repeat(lap, 256)
	n := copy(b, long[phase:])
	for n < len(b) {
		n += copy(b[n:], long)
	}
}

// spoil overwrites a destination, unless it is the source as well.
func (p pattern) spoil(keep bool, t tensor.Tensor) {
	if !keep {
		fill(t.Bytes(), 0xee)
	}
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func (p pattern) wrong(t tensor.Tensor, off, r int) int { return p.differ(t, off, p.of(r)) }

func (p pattern) wrongReduced(t tensor.Tensor, off, k int) int { return p.differ(t, off, p.reduced(k)) }

// wrongBlocks checks blocks of per elements, block r from rank r from index off on.
func (p pattern) wrongBlocks(t tensor.Tensor, per, off int) (bad int) {
	for r := range p.n {
		bad += p.wrong(t.Slice(r*per, (r+1)*per), off, r)
	}
	return bad
}

func (p pattern) differ(t tensor.Tensor, off int, lap []byte) (bad int) {
	es, b := p.dt.Size(), t.Bytes()
	for i := 0; i < t.Len(); i++ {
		k := (off + i) % period * es
		if !bytes.Equal(b[i*es:(i+1)*es], lap[k:k+es]) {
			bad++
		}
	}
	return bad
}

package collective

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

func floatTypes() []tensor.DType { return slices.Sorted(maps.Keys(formats)) }

// specials are the codes that arithmetic treats in some way of its own.
func (f *format) specials() []uint64 {
	s := f.signBit()
	list := []uint64{0, s, 1, s | 1, 1<<f.man - 1, 1 << f.man, f.largest(), s | f.largest()}
	if !f.ieee {
		return append(list, s-1, s|(s-1))
	}
	inf, payload := f.top(), uint64(1)
	if f.man > 4 {
		payload = 5 // 2 bits, the lowest among them
	}
	return append(list, inf, s|inf, f.quiet(inf)|payload, s|f.quiet(inf)|payload, inf|payload, s|inf|payload)
}

// element is what every rank gives for one element of the test of special values.
type element []uint64

// specialElements are: each special value on each rank among ordinary ones, each pair of special
// values on each pair of ranks, each on all ranks, and random codes.
func specialElements(f *format, n int) (list []element) {
	ordinary := func() element {
		e := make(element, n)
		for r := range e {
			e[r] = f.code(float64(1+r%3) / 2)
		}
		return e
	}
	all := f.specials()
	for _, v := range all {
		list = append(list, slices.Repeat(element{v}, n))
		for r := range n {
			e := ordinary()
			e[r] = v
			list = append(list, e)
		}
	}
	for i, v := range all {
		for j, w := range all {
			r := (i + 3*j) % n
			e := ordinary()
			e[r], e[(r+1+i%max(1, n-1))%n] = v, w
			list = append(list, e)
		}
	}
	rng := rand.New(rand.NewPCG(uint64(f.exp), uint64(f.bits)))
	for range 40 {
		e := make(element, n)
		for r := range e {
			e[r] = rng.Uint64() >> (64 - f.bits)
		}
		list = append(list, e)
	}
	return list
}

// Every algorithm gives the documented bits for every special value on every rank, the same on all.
func TestSpecialValues(t *testing.T) {
	sizes := []int{1, 2, 4}
	if *full {
		sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			var list []*numbers
			for _, dt := range floatTypes() {
				elements := specialElements(formats[dt], n)
				for _, op := range []tensor.Op{tensor.Sum, tensor.Prod, tensor.Min, tensor.Max, tensor.Avg} {
					cs := calls(t, arithmetic{dt: dt, op: op, n: n}, func(r int) []uint64 {
						codes := make([]uint64, len(elements))
						for i := range codes {
							codes[i] = elements[i][r]
						}
						return codes
					})
					for _, c := range cs {
						c.contract(t, elements)
					}
					list = append(list, cs...)
				}
			}
			runNumbers(t, n, list)
		})
	}
}

// contract holds what the reference wants against those sentences of docs/numerics.md that do not
// depend on the order of the operands.
func (c *numbers) contract(t *testing.T, elements []element) {
	t.Helper()
	f := formats[c.dt]
	for rank, want := range c.wants {
		lo, hi := 0, c.n // whose contributions it holds
		switch c.info.Collective {
		case schedule.Scan:
			hi = rank + 1
		case schedule.Exscan:
			hi = rank
		}
		if hi-lo < 2 {
			continue
		}
		for i, got := range want {
			e := elements[i%len(elements)][lo:hi]
			must := func(ok bool) {
				if !ok {
					t.Fatalf("%v rank %d: %x of %x", c, rank, got, e)
				}
			}
			var nans []uint64
			infinities, zeros := map[uint64]bool{}, map[uint64]bool{}
			for _, v := range e {
				switch {
				case f.nan(v):
					nans = append(nans, f.quiet(v))
				case f.inf(v):
					infinities[v] = true
				case v&^f.signBit() == 0:
					zeros[v] = true
				}
			}
			nanFree := c.op == tensor.Min || c.op == tensor.Max // makes no NaN of numbers
			switch {
			case len(nans) > 0 && nanFree:
				must(slices.Contains(nans, got))
			case len(nans) > 0:
				must(f.nan(got))
				if len(infinities) == 0 && c.op != tensor.Prod && f.ieee {
					// Only sums of the largest values can become infinite, and only of both signs NaN.
					must(slices.Contains(nans, got) || got == f.signBit()|f.quiet(f.top()))
				}
			case nanFree:
				must(slices.Contains(e, got))
				must(!f.nan(got))
			case len(infinities) == 2 && c.op != tensor.Prod:
				must(got == f.signBit()|f.quiet(f.top()))
			case len(infinities) > 0 && c.op == tensor.Prod && len(zeros) > 0:
				must(f.nan(got))
			case c.op == tensor.Avg && len(infinities) == 0:
				must(!f.nan(got) && !f.inf(got))
			}
			if zero := len(zeros) > 0 && len(nans) == 0; zero {
				switch {
				case c.op == tensor.Min && f.value(got) == 0:
					must(zeros[f.signBit()] == (got == f.signBit()))
				case c.op == tensor.Max && f.value(got) == 0:
					must(zeros[0] == (got == 0))
				}
			}
			if len(nans) == 1 && len(infinities) == 0 && len(zeros) == 0 && c.ordinary(e) {
				must(got == nans[0])
			}
		}
	}
}

// ordinary tells whether all numbers among the codes are of moderate size.
func (c *numbers) ordinary(e element) bool {
	f := formats[c.dt]
	for _, v := range e {
		if !f.nan(v) && (f.value(v) < 0.5 || f.value(v) > 1.5) {
			return false
		}
	}
	return true
}

package collective

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/gccl/gccl/tensor"
)

// averageElements are finite contributions near the largest values, small ones and random ones; of
// integers, the ends of the range and random ones.
func averageElements(dt tensor.DType, n int) (list []element) {
	rng := rand.New(rand.NewPCG(uint64(dt), uint64(n)))
	mixed := func(codes ...uint64) {
		e := make(element, n)
		for r := range e {
			e[r] = codes[(r+len(list))%len(codes)]
		}
		list = append(list, e)
	}
	f := formats[dt]
	if f == nil {
		ones := uint64(math.MaxUint64) >> (64 - 8*dt.Size())
		for _, c := range []uint64{0, 1, ones, ones >> 1, ones>>1 + 1, ones - 1, 10, ones - 6} {
			mixed(c)
			mixed(c, ones>>1)
			mixed(c, 3, ones-1)
		}
		for range 40 {
			e := make(element, n)
			for r := range e {
				e[r] = rng.Uint64() & ones
			}
			list = append(list, e)
		}
		return list
	}
	s, most := f.signBit(), f.largest()
	for _, c := range []uint64{most, most - 1, most - 2, 1, 2, 3, 1 << f.man, 1<<f.man - 1, 0} {
		mixed(c)
		mixed(s | c)
		mixed(c, s|c)
		mixed(c, most)
		mixed(c, most, s|(most-1))
		mixed(c, 0)
	}
	for range 60 {
		e := make(element, n)
		for r := range e {
			for e[r] = rng.Uint64() >> (64 - f.bits); f.nan(e[r]) || f.inf(e[r]); {
				e[r] = rng.Uint64() >> (64 - f.bits)
			}
		}
		list = append(list, e)
	}
	return list
}

// Avg of every type is what docs/numerics.md says: bit for bit by the order of the algorithm, and in
// whatever order finite, and near the exact average.
func TestAverage(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			var list []*numbers
			for _, dt := range tensor.DTypes() {
				elements := averageElements(dt, n)
				cs := calls(t, arithmetic{dt: dt, op: tensor.Avg, n: n}, func(r int) []uint64 {
					codes := make([]uint64, len(elements))
					for i := range codes {
						codes[i] = elements[i][r]
					}
					return codes
				})
				for _, c := range cs {
					for _, want := range c.wants {
						for i, got := range want {
							if text := c.offAverage(elements[i%len(elements)], got); text != "" {
								t.Fatalf("%v: %x of %x: %s", c, got, elements[i%len(elements)], text)
							}
						}
					}
				}
				list = append(list, cs...)
			}
			runNumbers(t, n, list)
		})
	}
}

// offAverage says how a result breaks what is promised of averages in any order, or "".
func (c *numbers) offAverage(e element, got uint64) string {
	sum, f := new(big.Float).SetPrec(3000), formats[c.dt]
	if f == nil {
		return c.offInteger(e, got)
	}
	top := 0.0
	for _, v := range e {
		sum.Add(sum, big.NewFloat(f.value(v)))
		top = max(top, math.Abs(f.value(v)))
	}
	if f.nan(got) || f.inf(got) {
		return "not finite"
	}
	if c.n == 1 && got != e[0] {
		return "changed"
	}
	if c.n == 2 && e[0] == e[1] && math.Abs(f.value(e[0])) >= f.value(4<<f.man) && got != e[0] {
		return "not exact, though nothing rounds"
	}
	exact := sum.Quo(sum, big.NewFloat(float64(c.n)))
	off, _ := new(big.Float).Sub(exact, big.NewFloat(f.value(got))).Float64()
	// Each of the n−1 sums and the division round by half a unit at the size of the largest
	// contribution or less; scaling loses up to half a denormal in each contribution, scaled back by
	// 2^k/n.
	unit := math.Nextafter(top, math.Inf(1)) - top
	if f.bits < 64 {
		_, exp := math.Frexp(top)
		unit = math.Ldexp(1, exp-1-int(f.man))
	}
	denormal := f.value(1)
	lost := denormal * math.Ldexp(1, c.headroom()) / 2
	if c.n == 1 {
		lost = 0
	}
	if bound := float64(c.n)*max(unit, denormal) + lost; math.Abs(off) > bound {
		return fmt.Sprintf("off by %v, bound is %v", off, bound)
	}
	return ""
}

// offInteger compares with the wrapped sum, divided and truncated toward zero, in math/big.
func (c *numbers) offInteger(e element, got uint64) string {
	size := uint(8 * c.dt.Size())
	mod := new(big.Int).Lsh(big.NewInt(1), size)
	sum := new(big.Int)
	for _, v := range e {
		sum.Add(sum, new(big.Int).SetUint64(v))
	}
	sum.Mod(sum, mod)
	if !unsigned(c.dt) && sum.Bit(int(size)-1) == 1 {
		sum.Sub(sum, mod)
	}
	sum.Quo(sum, big.NewInt(int64(c.n)))
	if want := sum.Mod(sum, mod).Uint64(); want != got {
		return fmt.Sprintf("want %x", want)
	}
	return ""
}

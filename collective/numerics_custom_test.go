package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// Every rank scales by a factor of its own.
func TestPreMulSum(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			var list []*numbers
			for _, dt := range tensor.DTypes() {
				a := arithmetic{dt: dt, op: tensor.Sum, n: n}
				var ops []tensor.Op
				for r := range n {
					s := float64(r + 2)
					switch {
					case dt.Float():
						s = []float64{1.0 / 3, -2.5, 1e-3, 0, 7}[r]
					case !unsigned(dt) && r%2 == 1:
						s = -s
					}
					a.scales, ops = append(a.scales, s), append(ops, tensor.PreMulSum(s))
				}
				cs := calls(t, a, func(r int) []uint64 {
					rng := rand.New(rand.NewPCG(uint64(dt), uint64(r)))
					codes := make([]uint64, 61)
					for i := range codes {
						codes[i] = rng.Uint64() & (math.MaxUint64 >> (64 - 8*dt.Size()))
					}
					if f := formats[dt]; f != nil {
						copy(codes, f.specials())
					}
					return codes
				})
				for _, c := range cs {
					c.ops = ops
				}
				list = append(list, cs...)
			}
			runNumbers(t, n, list)
		})
	}
}

// join concatenates lists of nonzero hexadecimal digits: associative, and no two orders of
// operands give the same.
func join(left, right uint64) uint64 {
	return left<<((bits.Len64(right)+3)/4*4) | right
}

// multiply is the product of 2×2 matrices of 16-bit numbers, modulo 2¹⁶.
func multiply(left, right uint64) uint64 {
	at := func(m uint64, row, col int) uint64 { return m >> (16 * (2*row + col)) & 0xffff }
	var out uint64
	for row := range 2 {
		for col := range 2 {
			v := at(left, row, 0)*at(right, 0, col) + at(left, row, 1)*at(right, 1, col)
			out |= v & 0xffff << (16 * (2*row + col))
		}
	}
	return out
}

// gcd is associative and commutative, with gcd(0, x) = x.
func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func customOf(name string, commutative bool, f func(a, b uint64) uint64) tensor.Op {
	return tensor.Custom(name, commutative, func(dst, a, b []uint64) {
		for i := range dst {
			dst[i] = f(a[i], b[i])
		}
	})
}

// Custom operations get their operands in the order of the ranks unless they say that they commute;
// algorithms that reorder are not chosen for them, and refused where they are demanded.
func TestCustomOperations(t *testing.T) {
	for _, n := range []int{2, 3, 7} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			comms := local(t, n, Config{Timeout: time.Minute, BufferBytes: 16 << 10, noMap: n == 3})
			give := func(f func(r, i int) uint64, count int) [][]uint64 {
				in := make([][]uint64, n)
				for r := range in {
					in[r] = make([]uint64, count)
					for i := range in[r] {
						in[r][i] = f(r, i)
					}
				}
				return in
			}
			digit := func(r, _ int) uint64 { return uint64(r + 1) }
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			random := func(_, _ int) uint64 { return rng.Uint64() }
			multiple := func(r, i int) uint64 { return uint64(6+i%5) * (1 + rng.Uint64N(1<<20)) }
			for _, tc := range []struct {
				op   tensor.Op
				f    func(a, b uint64) uint64
				give func(r, i int) uint64
			}{
				{customOf("join", false, join), join, digit},
				{customOf("multiply", false, multiply), multiply, random},
				{customOf("gcd", true, gcd), gcd, multiple},
			} {
				for _, count := range []int{n, 2000 * n} {
					in := give(tc.give, count)
					for _, info := range catalog() {
						if !info.Collective.Reduces() || info.Supports(n, schedule.Shape{}) != nil {
							continue
						}
						each(t, comms, func(c *Comm) error { return customCall(c, &info, tc.op, tc.f, in) })
					}
				}
			}
		})
	}
}

// customCall demands an algorithm and checks the result, or that it is refused.
func customCall(c *Comm, info *schedule.Info, op tensor.Op, f func(a, b uint64) uint64, in [][]uint64) error {
	if err := c.retune(info.Collective.String() + ":" + info.Name); err != nil {
		return err
	}
	src := slices.Clone(in[c.rank])
	per := len(src)
	if info.Collective == schedule.ReduceScatter {
		per /= c.size
	}
	dst := make([]uint64, per)
	call := Call{Kind: Kind(info.Collective), Src: tensor.Of(src), Dst: tensor.Of(dst), Op: op, Root: c.size - 1}
	plan, err := c.Plan(call)
	if !op.Commutative() && !info.Ordered {
		if err2 := c.do(context.Background(), &call); !errors.Is(err, ErrInvalid) || !errors.Is(err2, ErrInvalid) || !strings.Contains(err.Error(), "does not commute") {
			return fmt.Errorf("%s of %s: planned: %v, called: %v", info.Name, op.Name(), err, err2)
		}
		return nil
	}
	if err == nil {
		err = c.do(context.Background(), &call)
	}
	if err != nil {
		return err
	}
	if plan.Algorithm != info.Name {
		return fmt.Errorf("%s was chosen instead of %s", plan.Algorithm, info.Name)
	}
	last, base := c.size, 0
	switch info.Collective {
	case schedule.Scan:
		last = c.rank + 1
	case schedule.Exscan:
		last = c.rank
	case schedule.ReduceScatter:
		base = c.rank * per
	case schedule.Reduce:
		if c.rank != call.Root {
			return nil
		}
	}
	for i := range dst {
		var want uint64
		for r := range last {
			if want = f(want, in[r][base+i]); r == 0 {
				want = in[0][base+i]
			}
		}
		if dst[i] != want {
			return fmt.Errorf("%s of %s: element %d of %d is %#x, want %#x", info.Name, op.Name(), i, len(dst), dst[i], want)
		}
	}
	return nil
}

// Without rules, too, an operation that does not commute is only ever given to algorithms that keep
// the order: all candidates that are not refused.
func TestOnlyOrderedAlgorithmsForCustomOperations(t *testing.T) {
	op := customOf("join", false, join)
	for _, n := range []int{2, 5} {
		comms := local(t, n, Config{})
		for _, count := range []int{1, 1000, 1 << 16} {
			for _, kind := range []Kind{AllReduce, Reduce, ReduceScatter, Scan, Exscan} {
				src := make([]uint64, count*n)
				dst := src
				if kind == ReduceScatter {
					dst = src[:count]
				}
				plan, err := comms[0].Plan(Call{Kind: kind, Src: tensor.Of(src), Dst: tensor.Of(dst), Op: op})
				require.NoError(t, err)
				require.Equal(t, plan.Algorithm, plan.Candidates[0].Algorithm)
				for i, cand := range plan.Candidates {
					if cand.Refused == "" {
						require.True(t, comms[0].catalog[cand.Index].Ordered, "%v: candidate %d, %v", kind, i, cand)
					}
				}
			}
		}
	}
}

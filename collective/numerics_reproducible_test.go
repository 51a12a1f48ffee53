package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// randomFloats is what a rank gives: numbers of which sums round, so that their order shows.
func randomFloats(dt tensor.DType, rank, count int) []uint64 {
	rng := rand.New(rand.NewPCG(uint64(dt), uint64(rank)))
	codes := make([]uint64, count)
	for i := range codes {
		codes[i] = formats[dt].code(rng.NormFloat64() * math.Ldexp(1, rng.IntN(6)-3))
	}
	return codes
}

// leftFold is the one result of reproducible mode: contributions in rank order, in one reduction
// step, or, of prefixes, one after the other.
func (a *arithmetic) leftFold(coll schedule.Collective, xs []uint64) uint64 {
	ys := make([]uint64, len(xs))
	for r := range xs {
		ys[r] = a.pre(r, xs[r])
	}
	if coll == schedule.Scan || coll == schedule.Exscan {
		acc := ys[0]
		for _, y := range ys[1:] {
			acc = a.fold([]uint64{acc, y})
		}
		return acc
	}
	return a.post(a.fold(ys))
}

// RunReproducible makes reductions of random floats by every candidate that the communicator allows,
// in and out of registered memory, and compares with the left fold in rank order. It returns how many
// calls it made.
func RunReproducible(c *Comm, counts ...int) (calls int, err error) {
	scaled := tensor.PreMulSum(0.3)
	for _, dt := range floatTypes() {
		for _, op := range []tensor.Op{tensor.Sum, tensor.Avg, tensor.Prod, scaled} {
			for _, count := range counts {
				for _, registered := range []bool{false, true} {
					if registered && op != tensor.Sum {
						continue
					}
					a := &arithmetic{dt: dt, op: op, n: c.size}
					if op == scaled {
						a.op, a.scales = tensor.Sum, slices.Repeat([]float64{0.3}, c.size)
					}
					n, err := reproduce(c, a, op, count, registered)
					if calls += n; err != nil {
						return calls, err
					}
				}
			}
		}
	}
	return calls, nil
}

func reproduce(c *Comm, a *arithmetic, op tensor.Op, count int, registered bool) (calls int, err error) {
	var mem [2]tensor.Tensor
	for i := range mem {
		if mem[i], err = tensor.FromBytes(a.dt, make([]byte, count*c.size*a.dt.Size())); registered {
			mem[i], err = c.Alloc(context.Background(), a.dt, count*c.size)
		}
		if err != nil {
			return 0, err
		}
	}
	ins := make([][]uint64, c.size)
	for r := range ins {
		ins[r] = randomFloats(a.dt, r, count*c.size)
	}
	src := mem[0]
	copy(src.Bytes(), bytesOf(a.dt, ins[c.rank]))
	for _, coll := range []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.Reduce, schedule.Scan, schedule.Exscan} {
		if a.op == tensor.Avg && !coll.Finishes() {
			continue
		}
		first, last, length := 0, c.size, count*c.size
		switch coll {
		case schedule.ReduceScatter:
			first, length = c.rank*count, count
		case schedule.Scan:
			last = c.rank + 1
		case schedule.Exscan:
			last = c.rank
		}
		want, xs := make([]uint64, length), make([]uint64, last)
		if coll == schedule.Reduce && c.rank != 0 || last == 0 {
			want = want[:0]
		}
		for i := range want {
			for r := range xs {
				xs[r] = ins[r][first+i]
			}
			want[i] = a.leftFold(coll, xs)
		}
		dst := mem[1].Slice(0, length)
		call := Call{Kind: Kind(coll), Src: src, Dst: dst, Op: op}
		cands, err := c.Candidates(call)
		if err != nil {
			return calls, err
		}
		for _, cand := range cands {
			if cand.Refused != "" {
				continue
			}
			clear(dst.Bytes())
			p, err := c.PrepareAs(call, cand)
			if err == nil {
				err = p.Run(context.Background())
			}
			if err != nil {
				return calls, err
			}
			calls++
			if got := dst.Bytes()[:len(want)*a.dt.Size()]; !bytes.Equal(got, bytesOf(a.dt, want)) {
				return calls, fmt.Errorf("%v of rank %d by %v: not the left fold", call, c.rank, cand)
			}
		}
	}
	if registered {
		return calls, errors.Join(c.Free(mem[0]), c.Free(mem[1]))
	}
	return calls, nil
}

// Reproducible mode: whatever the algorithm, the channels, the links and the windows, the same bits.
func TestReproducibleBits(t *testing.T) {
	sizes := []int{4}
	if *full {
		sizes = []int{2, 3, 4, 5, 6, 7, 8, 9}
	}
	for _, n := range sizes {
		for _, cfg := range []Config{
			{Channels: 1, BufferBytes: 2 << 10, Slots: 4},
			{Channels: 2},
			{Channels: 3, BufferBytes: 8 << 10, noMap: true},
		} {
			cfg.Reproducible, cfg.Timeout = true, time.Minute
			t.Run(fmt.Sprintf("ranks=%d/channels=%d", n, cfg.Channels), func(t *testing.T) {
				each(t, local(t, n, cfg), func(c *Comm) error {
					calls, err := RunReproducible(c, 1, 700)
					if calls < 100 {
						t.Errorf("only %d calls", calls)
					}
					return err
				})
			})
		}
	}
}

// The data of these tests shows in which order it was added.
func TestRandomFloatsShowTheirOrder(t *testing.T) {
	for _, dt := range floatTypes() {
		a := &arithmetic{dt: dt, op: tensor.Sum, n: 3}
		differ := 0
		x, y, z := randomFloats(dt, 0, 200), randomFloats(dt, 1, 200), randomFloats(dt, 2, 200)
		for i := range x {
			if a.fold([]uint64{x[i], y[i], z[i]}) != a.fold([]uint64{x[i], a.fold([]uint64{y[i], z[i]})}) {
				differ++
			}
		}
		require.Greater(t, differ, 10, "%v", dt)
	}
}

// Without it, the same algorithm gives the same bits on all ranks and on every run.
func TestSameBitsOnAllRanksAndRuns(t *testing.T) {
	const n, count = 4, 5000
	for _, dt := range floatTypes() {
		results := map[string][]byte{} // of the first rank that got there, by candidate
		for range 2 {
			for _, posted := range []bool{false, true} {
				comms := local(t, n, Config{Timeout: time.Minute, BufferBytes: 16 << 10, noMap: posted})
				var mu sync.Mutex
				each(t, comms, func(c *Comm) error {
					src, _ := tensor.FromBytes(dt, bytesOf(dt, randomFloats(dt, c.rank, count)))
					dst, _ := tensor.FromBytes(dt, make([]byte, len(src.Bytes())))
					call := Call{Kind: AllReduce, Src: src, Dst: dst, Op: tensor.Sum}
					cands, err := c.Candidates(call)
					if err != nil {
						return err
					}
					for _, cand := range cands {
						if cand.Refused != "" {
							continue
						}
						p, err := c.PrepareAs(call, cand)
						if err == nil {
							err = p.Run(context.Background())
						}
						if err != nil {
							return err
						}
						mu.Lock()
						if results[cand.String()] == nil {
							results[cand.String()] = bytes.Clone(dst.Bytes())
						}
						same := bytes.Equal(results[cand.String()], dst.Bytes())
						mu.Unlock()
						if !same {
							return fmt.Errorf("%v of %v gives other bits", cand, dt)
						}
					}
					return nil
				})
			}
		}
		require.Greater(t, len(results), 5)
	}
}

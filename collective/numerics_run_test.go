package collective

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// numbers is one call by a given algorithm, with what every rank gives and what the reference says
// that it gets.
type numbers struct {
	arithmetic
	info  schedule.Info
	index int
	ops   []tensor.Op // by rank, where they differ (PreMulSum)
	ins   [][]uint64
	wants [][]uint64
}

func (c *numbers) String() string {
	return fmt.Sprintf("%s %v %v of %d ranks", c.info.Name, c.dt, c.op.Name(), c.n)
}

// untouched is what Out holds before a call.
const untouched = 0x55

// calls lists one call for every reducing algorithm. contribution is what a rank gives to one block;
// blocks gets the ranks' contributions several times over, so that every chunk sees all of them.
func calls(t *testing.T, a arithmetic, contribution func(rank int) []uint64) (list []*numbers) {
	t.Helper()
	for index, info := range catalog() {
		if !info.Collective.Reduces() || info.Supports(a.n, schedule.Shape{}) != nil {
			continue
		}
		if a.op == tensor.Avg && !info.Collective.Finishes() {
			continue
		}
		c := &numbers{arithmetic: a, info: info, index: index}
		var ss []schedule.Schedule
		for r := range a.n {
			s, err := info.Make(r, a.n, schedule.Shape{Root: a.n - 1})
			require.NoError(t, err)
			ss = append(ss, s)
			in := slices.Repeat(contribution(r), a.n)
			_, blocks := info.Collective.Blocks(r, a.n, a.n-1)
			out := blocks * len(in)
			if info.Collective == schedule.ReduceScatter {
				out = len(in) / a.n
			}
			c.ins, c.wants = append(c.ins, in), append(c.wants, slices.Repeat([]uint64{untouched}, out))
		}
		require.NoError(t, replay(ss, &c.arithmetic, c.ins, c.wants), "%v", c)
		for r := range a.n {
			if info.Collective == schedule.AllReduce {
				require.Equal(t, c.wants[0], c.wants[r], "%v: ranks get different bits", c)
			}
		}
		list = append(list, c)
	}
	return list
}

// run makes the call on one rank, in and out of place, and compares every bit.
func (c *numbers) run(comm *Comm) error {
	op := c.op
	if c.ops != nil {
		op = c.ops[comm.rank]
	}
	for _, inPlace := range []bool{false, true} {
		src, err := tensor.FromBytes(c.dt, bytesOf(c.dt, c.ins[comm.rank]))
		if err != nil {
			return err
		}
		dst, err := tensor.FromBytes(c.dt, bytesOf(c.dt, c.wants[comm.rank]))
		if err != nil {
			return err
		}
		want := slices.Clone(dst.Bytes())
		copy(dst.Bytes(), bytesOf(c.dt, slices.Repeat([]uint64{untouched}, dst.Len())))
		switch per := len(c.ins[comm.rank]) / c.n; {
		case !inPlace || dst.Len() == 0:
		case c.info.Collective == schedule.Exscan && comm.rank == 0:
		case dst.Len() == src.Len():
			dst = src
		default:
			dst = src.Slice(comm.rank*per, (comm.rank+1)*per)
		}
		call := Call{Kind: Kind(c.info.Collective), Src: src, Dst: dst, Op: op, Root: c.n - 1}
		p, err := comm.prepareBy(call, func(key planKey) (choice, error) { // also what the tuner would refuse, two levels on one host
			return comm.chosen(key, tuner.Candidate{Algorithm: c.info.Name, Index: c.index, Channels: 1}), nil
		})
		if err == nil {
			err = p.Run(context.Background())
		}
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if bytes.Equal(dst.Bytes(), want) {
			continue
		}
		got, wanted := codesOf(c.dt, dst.Bytes()), codesOf(c.dt, want)
		for i := range got {
			if got[i] != wanted[i] {
				var gave []string
				for r := range c.n {
					gave = append(gave, fmt.Sprintf("%x", c.ins[r][c.elementOf(comm.rank, i)]))
				}
				return fmt.Errorf("%v in place %v: element %d is %x, want %x; the ranks gave %v", c, inPlace, i, got[i], wanted[i], gave)
			}
		}
	}
	return nil
}

// elementOf is where in In element i of a rank's Out comes from.
func (c *numbers) elementOf(rank, i int) int {
	if c.info.Collective == schedule.ReduceScatter {
		return rank*len(c.ins[0])/c.n + i
	}
	return i
}

// runNumbers makes the calls over mapped and over posted links.
func runNumbers(t *testing.T, n int, list []*numbers) {
	t.Helper()
	for _, posted := range []bool{false, true} {
		comms := local(t, n, Config{Timeout: time.Minute, BufferBytes: 64 << 10, noMap: posted})
		var wg sync.WaitGroup
		for _, c := range comms {
			wg.Go(func() {
				for _, call := range list {
					if err := call.run(c); err != nil {
						t.Errorf("rank %d, posted %v: %v", c.rank, posted, err)
						c.Abort("test failed")
						return
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
}

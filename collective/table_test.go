package collective

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

var full = flag.Bool("full", false, "run every combination of the table of collectives")

// tableCase is one call of the table.
type tableCase struct {
	info    *schedule.Info
	dt      tensor.DType
	op      tensor.Op
	count   int // of the short side
	inPlace bool
	odd     bool
	root    int
}

func (tc tableCase) String() string {
	return fmt.Sprintf("%s %v %s count %d in place %v odd %v root %d", tc.info.Name, tc.dt, tc.op.Name(), tc.count, tc.inPlace, tc.odd, tc.root)
}

// tableCases lists the calls for a number of ranks. Without -full every algorithm meets every count
// in one type, and every type and operation at one count.
func tableCases(infos []schedule.Info, n int) (cases []tableCase) {
	counts := []int{0, 1, n - 1, n, n + 1, 17, 1021, 65537}
	for k := range infos {
		info := &infos[k]
		if info.Supports(n, schedule.Shape{}) != nil {
			continue
		}
		for _, dt := range tensor.DTypes() {
			for _, op := range tensor.Ops() {
				if _, err := tensor.NewReducer(dt, op, n); err != nil {
					continue
				}
				if !info.Collective.Reduces() && op != tensor.Sum {
					continue
				}
				if !info.Collective.Finishes() && op == tensor.Avg {
					continue
				}
				for c, count := range counts {
					if count < 0 || c > 0 && count == counts[c-1] {
						continue
					}
					plain := dt == tensor.Float32 && op == tensor.Sum
					if !*full && !(plain || count == 17 && (n == 2 || n == 5)) {
						continue
					}
					if !*full && count == 65537 && n > 4 {
						continue
					}
					for _, inPlace := range []bool{false, true} {
						if inPlace && !info.InPlace {
							continue
						}
						roots := 1
						if info.Collective.Rooted() && plain {
							roots = n
						}
						for root := range roots {
							cases = append(cases, tableCase{info, dt, op, count, inPlace, (c+root)%2 == 1, root})
						}
					}
				}
			}
		}
	}
	return cases
}

func TestTable(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 5, 7, 8}
	if *full {
		sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16}
	}
	for _, n := range sizes {
		for _, wire := range []bool{false, true} {
			if wire && n != 3 && !*full {
				continue
			}
			t.Run(fmt.Sprintf("ranks=%d/wire=%v", n, wire), func(t *testing.T) {
				comms := local(t, n, Config{Timeout: time.Minute, BufferBytes: 64 << 10, noMap: wire})
				cases := tableCases(catalog(), n)
				var wg sync.WaitGroup
				for _, c := range comms {
					wg.Go(func() {
						for _, tc := range cases {
							if err := tc.run(c); err != nil {
								t.Errorf("rank %d of %d: %v: %v", c.rank, n, tc, err)
								c.Abort("test failed")
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func local(t *testing.T, n int, cfg Config) []*Comm {
	t.Helper()
	comms, err := NewLocal(context.Background(), n, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, c := range comms {
			require.NoError(t, c.Close())
		}
	})
	return comms
}

// run makes the call on one rank and compares with the reference.
func (tc tableCase) run(c *Comm) error { return tc.runIn(c, filled) }

// runIn does so on tensors that place makes, first the source, then the destination.
func (tc tableCase) runIn(c *Comm, place func(dt tensor.DType, count int, odd bool, f func(int) float64) guarded) error {
	return tc.runBy(c, place, func(call *Call) error { return c.do(context.Background(), call) })
}

// runBy has do make the call.
func (tc tableCase) runBy(c *Comm, place func(dt tensor.DType, count int, odd bool, f func(int) float64) guarded, do func(*Call) error) error {
	if rule := tc.info.Collective.String() + ":" + tc.info.Name; c.cfg.Algo != rule {
		if err := c.retune(rule); err != nil {
			return err
		}
	}
	n, me, coll := c.size, c.rank, tc.info.Collective
	val := func(r, i int) float64 { return float64(wrap(tc.dt, valueOf(tc.dt, tc.op, r, i))) }
	in, out := coll.Blocks(me, n, tc.root)
	src := place(tc.dt, in*tc.count, tc.odd, func(i int) float64 { return val(me, i) })
	dst := place(tc.dt, out*tc.count, tc.odd, func(int) float64 { return 0 })
	call := Call{Kind: Kind(coll), Src: src.t, Dst: dst.t, Op: tc.op, Root: tc.root}
	if tc.inPlace {
		switch {
		case in == 0 || out == 0:
		case in == out:
			dst = src
			call.Dst = src.t
		case in < out:
			lo := me * tc.count
			copy(dst.t.Slice(lo, lo+tc.count).Bytes(), src.t.Bytes())
			call.Src = dst.t.Slice(lo, lo+tc.count)
		default:
			dst = src
			call.Dst = src.t.Slice(me*tc.count, (me+1)*tc.count)
		}
	}
	if err := do(&call); err != nil {
		return err
	}
	if !src.intact() || !dst.intact() {
		return fmt.Errorf("bytes outside the tensors changed")
	}
	if call.Dst.Len() == 0 {
		return nil
	}
	got := guarded{t: call.Dst}
	if i := got.differs(tc.dt, func(i int) float64 { return tc.want(c, i) }); i >= 0 {
		return fmt.Errorf("element %d is %x, want %x (%v)", i, call.Dst.Slice(i, i+1).Bytes(), encode(tc.dt, tc.want(c, i)), tc.want(c, i))
	}
	return nil
}

// want is element i of the rank's result.
func (tc tableCase) want(c *Comm, i int) float64 {
	n, me := c.size, c.rank
	val := func(r, i int) float64 { return float64(wrap(tc.dt, valueOf(tc.dt, tc.op, r, i))) }
	switch tc.info.Collective {
	case schedule.AllReduce, schedule.Reduce:
		return dumb(tc.dt, tc.op, 0, n, n, i)
	case schedule.ReduceScatter:
		return dumb(tc.dt, tc.op, 0, n, n, me*tc.count+i)
	case schedule.Scan:
		return dumb(tc.dt, tc.op, 0, me+1, n, i)
	case schedule.Exscan:
		if me == 0 && tc.inPlace {
			return val(0, i)
		}
		if me == 0 {
			return 0
		}
		return dumb(tc.dt, tc.op, 0, me, n, i)
	case schedule.AllGather, schedule.Gather:
		return val(i/tc.count, i%tc.count)
	case schedule.Broadcast:
		return val(tc.root, i)
	case schedule.Scatter:
		return val(tc.root, me*tc.count+i)
	case schedule.AllToAll:
		return val(i/tc.count, me*tc.count+i%tc.count)
	}
	panic("unknown collective")
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	comms := local(t, 2, Config{})
	ctx := context.Background()
	const runs = 200
	go func() {
		b := make([]float32, 5000)
		for range runs + 1 + 10 {
			for _, n := range []int{1, 100, 5000} {
				if err := comms[1].AllReduce(ctx, tensor.Of(b[:n]), tensor.Of(b[:n]), tensor.Sum); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	b := make([]float32, 5000)
	once := func() {
		for _, n := range []int{1, 100, 5000} {
			if err := comms[0].AllReduce(ctx, tensor.Of(b[:n]), tensor.Of(b[:n]), tensor.Sum); err != nil {
				t.Error(err)
			}
		}
	}
	for range 10 {
		once()
	}
	require.Zero(t, testing.AllocsPerRun(runs, once))
}

// retune changes the rules of a communicator whose calls so far have ended, on all ranks alike.
func (c *Comm) retune(rules string) error {
	c.cfg.Algo = rules
	if err := c.loadTuning(); err != nil {
		return err
	}
	clear(c.plans)
	c.lastPlan = nil
	return c.tune()
}

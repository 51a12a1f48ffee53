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
			for _, op := range append(tensor.Ops(), premul) {
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
							cases = append(cases, tableCase{info, dt, op, count, inPlace, (c+root+k)%2 == 1 != inPlace, root})
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
		for _, way := range []struct{ wire, lazy bool }{{}, {wire: true}, {lazy: true}} {
			if way.wire && n != 3 && !(*full && n == 8) || way.lazy && n != 5 {
				continue
			}
			t.Run(fmt.Sprintf("ranks=%d/wire=%v/lazy=%v", n, way.wire, way.lazy), func(t *testing.T) {
				cfg := Config{Timeout: time.Minute, BufferBytes: 64 << 10, noMap: way.wire}
				if way.lazy {
					cfg.Lazy = 1
				}
				comms := local(t, n, cfg)
				cases := tableCases(catalog(), n)
				var wg sync.WaitGroup
				for _, c := range comms {
					wg.Go(func() {
						var mem heap
						for _, tc := range cases {
							if err := tc.runIn(c, mem.place); err != nil {
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

// placer makes a guarded tensor of any contents.
type placer func(dt tensor.DType, count int, odd bool) guarded

// run makes the call on one rank and compares with the reference.
func (tc tableCase) run(c *Comm) error { return tc.runIn(c, new(heap).place) }

// runIn does so on tensors that place makes, first the source, then the destination.
func (tc tableCase) runIn(c *Comm, place placer) error {
	return tc.runBy(c, place, func(call *Call) error { return c.do(context.Background(), call) })
}

// runBy has do make the call.
func (tc tableCase) runBy(c *Comm, place placer, do func(*Call) error) error {
	if rule := tc.info.Collective.String() + ":" + tc.info.Name; c.cfg.Algo != rule {
		if err := c.retune(rule); err != nil {
			return err
		}
	}
	me, coll := c.rank, tc.info.Collective
	mine := reference.given(tc.dt, tc.op, me)
	in, out := coll.Blocks(me, c.size, tc.root)
	src := place(tc.dt, in*tc.count, tc.odd)
	mine.fill(src.t.Bytes(), 0)
	dst := place(tc.dt, out*tc.count, tc.odd)
	clear(dst.t.Bytes())
	call := Call{Kind: Kind(coll), Src: src.t, Dst: dst.t, Op: tc.op, Root: tc.root}
	if tc.inPlace {
		switch {
		case in == 0 || out == 0:
		case in == out:
			dst = src
			call.Dst = src.t
		case in < out:
			lo := me * tc.count
			call.Src = dst.t.Slice(lo, lo+tc.count)
			mine.fill(call.Src.Bytes(), 0)
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
	size := tc.dt.Size()
	for _, w := range tc.expect(c, call.Dst.Len()) {
		b := call.Dst.Bytes()[w.at*size : (w.at+w.count)*size]
		if i := w.p.differs(b, w.first); i >= 0 {
			want := make([]byte, size)
			w.p.fill(want, w.first+i)
			return fmt.Errorf("element %d is %x, want %x", w.at+i, b[i*size:(i+1)*size], want)
		}
	}
	return nil
}

// expected is a part of a result: count elements from at on are those of p from first on.
type expected struct {
	at, count int
	p         pattern
	first     int
}

// expect is what the rank's result of some elements must be.
func (tc tableCase) expect(c *Comm, length int) (parts []expected) {
	n, me := c.size, c.rank
	whole := func(p pattern, first int) []expected { return []expected{{0, length, p, first}} }
	switch tc.info.Collective {
	case schedule.AllReduce, schedule.Reduce:
		return whole(reference.reduced(tc.dt, tc.op, 0, n, n), 0)
	case schedule.ReduceScatter:
		return whole(reference.reduced(tc.dt, tc.op, 0, n, n), me*tc.count)
	case schedule.Scan:
		return whole(reference.reduced(tc.dt, tc.op, 0, me+1, n), 0)
	case schedule.Exscan:
		switch {
		case me == 0 && tc.inPlace:
			return whole(reference.given(tc.dt, tc.op, 0), 0)
		case me == 0:
			return whole(reference.get(oracleKey{dt: tc.dt, lo: -1}, func(int) float64 { return 0 }), 0)
		}
		return whole(reference.reduced(tc.dt, tc.op, 0, me, n), 0)
	case schedule.Broadcast:
		return whole(reference.given(tc.dt, tc.op, tc.root), 0)
	case schedule.Scatter:
		return whole(reference.given(tc.dt, tc.op, tc.root), me*tc.count)
	}
	for r := 0; r*tc.count < length; r++ {
		first := 0
		if tc.info.Collective == schedule.AllToAll {
			first = me * tc.count
		}
		parts = append(parts, expected{r * tc.count, tc.count, reference.given(tc.dt, tc.op, r), first})
	}
	return parts
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	comms := local(t, 2, Config{})
	ctx := context.Background()
	const runs = 200
	calls := func(c *Comm) func() {
		b, got := make([]float32, 5000), make([]float32, 5000)
		return func() {
			for _, n := range []int{1, 100, 5000} {
				if err := c.AllReduce(ctx, tensor.Of(b[:n]), tensor.Of(b[:n]), tensor.Sum); err != nil {
					t.Error(err)
				}
				if err := c.SendRecv(ctx, tensor.Of(b[:n]), 1-c.rank, tensor.Of(got[:n]), 1-c.rank); err != nil {
					t.Error(err)
				}
			}
		}
	}
	go func() {
		once := calls(comms[1])
		for range runs + 1 + 10 {
			once()
		}
	}()
	once := calls(comms[0])
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
	c.forget()
	var err error
	c.tuning.hosts, c.tuning.tuner, err = c.newTuner() // its own: others may be calls behind, with other rules
	return err
}

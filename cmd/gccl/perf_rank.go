package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// connect makes this process's communicator from its environment.
func connect(ctx context.Context, change func(*collective.Config)) (*collective.Comm, error) {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	change(&cfg)
	return collective.New(ctx, cfg)
}

// perfRank is one rank's part of the measurement.
func perfRank(ctx context.Context, o *perfOptions) error {
	comm, err := connect(ctx, func(*collective.Config) {})
	if err != nil {
		return err
	}
	if o.benchmark().pairwise && comm.Size() < 2 {
		return errors.Join(fmt.Errorf("%s needs two ranks: use --ranks 2", o.Collective), comm.Close())
	}
	if o.Profile != "" && comm.Rank() == 0 {
		f, err := os.Create(o.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	p := &perf{o: o, comm: comm}
	if err := p.run(ctx); err != nil {
		return err
	}
	return comm.Close()
}

// perf is a measurement in progress.
type perf struct {
	o        *perfOptions
	comm     *collective.Comm
	dt       tensor.DType
	op       tensor.Op
	root     int
	src, dst tensor.Tensor // the largest size
	out      printer
	settled  time.Duration // spent in calls before the first size is measured
}

// row is what one size gave.
type row struct {
	Size  int     `json:"size"`
	Count int     `json:"count"`
	Type  string  `json:"type"`
	RedOp string  `json:"redop"`
	Root  int     `json:"root"`
	Iters int     `json:"iterations"`
	Out   timing  `json:"out_of_place"`
	In    *timing `json:"in_place,omitempty"`
}

type timing struct {
	Time  float64 `json:"time"` // µs
	AlgBW float64 `json:"alg_bw"`
	BusBW float64 `json:"bus_bw"`
	Wrong int     `json:"nwrong"` // −1: not checked
	*spread
}

// run measures everything that the options ask for.
func (p *perf) run(ctx context.Context) error {
	dts, err := p.o.types()
	if err != nil {
		return err
	}
	ops, err := p.o.ops()
	if err != nil {
		return err
	}
	roots, err := p.o.roots(p.comm.Size())
	if err != nil {
		return err
	}
	if p.out, err = newPrinter(ctx, p); err != nil {
		return err
	}
	big := slices.Max(p.o.sizes())
	var total totals
	for cycle := 0; cycle < p.o.Cycles || p.o.Cycles == 0; cycle++ {
		for _, p.dt = range dts {
			if err := p.allocate(ctx, p.o.Window*(big/p.dt.Size())+p.comm.Size()); err != nil {
				return err
			}
			for _, p.op = range ops {
				if p.o.benchmark().refuses(p.dt, p.op, p.comm.Size()) != nil {
					continue // of all, some
				}
				for _, p.root = range roots {
					if err := p.sweep(ctx, &total); err != nil {
						return err
					}
				}
			}
			if err := p.free(); err != nil {
				return err
			}
		}
	}
	if err := p.out.end(&total); err != nil {
		return err
	}
	if total.wrong > 0 {
		return fmt.Errorf("%d wrong elements", total.wrong)
	}
	return nil
}

// totals are what the footers say.
type totals struct {
	busBW    float64 // sum of n
	n, wrong int
}

func (t *totals) mean() float64 { return t.busBW / float64(max(1, t.n)) }

func (p *perf) sweep(ctx context.Context, total *totals) error {
	for _, s := range p.o.sizes() {
		r, err := p.measure(ctx, s)
		if err != nil {
			return err
		}
		for _, t := range []*timing{&r.Out, r.In} {
			if t != nil {
				total.busBW += t.BusBW
				total.n++
				total.wrong += max(0, t.Wrong)
			}
		}
		p.out.row(r)
	}
	return nil
}

// allocate makes the buffers, of count elements each.
func (p *perf) allocate(ctx context.Context, count int) (err error) {
	if p.o.Alloc {
		if p.src, err = p.comm.Alloc(ctx, p.dt, count); err != nil {
			return err
		}
		p.dst, err = p.comm.Alloc(ctx, p.dt, count)
		return err
	}
	for _, t := range []*tensor.Tensor{&p.src, &p.dst} {
		if *t, err = tensor.FromBytes(p.dt, make([]byte, count*p.dt.Size())); err != nil {
			return err
		}
		fill(t.Bytes(), 1) // touch the pages
	}
	return nil
}

// free gives registered buffers back.
func (p *perf) free() error {
	if !p.o.Alloc {
		return nil
	}
	if err := p.comm.Free(p.src); err != nil {
		return err
	}
	return p.comm.Free(p.dst)
}

// callFor is a collective of a size on the buffers.
func (p *perf) callFor(coll schedule.Collective, size, root int) collective.Call {
	n, me := p.comm.Size(), p.comm.Rank()
	per := size / p.dt.Size() / max(coll.InBlocks(n), coll.OutBlocks(n))
	in, out := coll.Blocks(me, n, root)
	return collective.Call{Kind: collective.Kind(coll), Op: p.op, Root: root, Src: p.src.Slice(0, in*per), Dst: p.dst.Slice(0, out*per)}
}

// measure times one size out of place and, where that exists, in place.
func (p *perf) measure(ctx context.Context, size int) (*row, error) {
	w := workFor(p, p.o.benchmark(), size)
	r := &row{Size: w.bytes(), Count: w.count, Type: p.dt.String(), RedOp: "none", Root: -1}
	if w.reduces {
		r.RedOp = p.op.Name()
	}
	if w.rooted {
		r.Root = p.root
	}
	for _, inPlace := range []bool{false, true} {
		if inPlace && w.inPlace == nil {
			break
		}
		call := w.call
		if inPlace {
			call = w.inPlace
		}
		us, iters, spread, err := p.time(ctx, call, w.trips)
		if err != nil {
			return nil, err
		}
		r.Iters = iters
		t := timing{Time: us, AlgBW: float64(w.bytes()) / us / 1e3, Wrong: -1, spread: spread}
		t.BusBW = t.AlgBW * w.factor(p.comm.Size())
		if p.o.Check && w.verify != nil {
			if t.Wrong, err = p.check(ctx, w, call, inPlace); err != nil {
				return nil, err
			}
		}
		if inPlace {
			r.In = &t
		} else {
			r.Out = t
		}
	}
	return r, nil
}

// check makes one more call on known data and counts wrong elements over all ranks.
func (p *perf) check(ctx context.Context, w *work, call func(context.Context) error, inPlace bool) (int, error) {
	w.prepare(inPlace)
	if err := p.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	if err := call(ctx); err != nil {
		return 0, err
	}
	bad := []int64{int64(w.verify(inPlace))}
	err := p.comm.AllReduce(ctx, tensor.Of(bad), tensor.Of(bad), tensor.Sum)
	return int(bad[0]), err
}

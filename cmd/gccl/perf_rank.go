package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/internal/launch"
	"github.com/gccl/gccl/tensor"
)

// perfRank is one rank's part of the measurement.
func perfRank(ctx context.Context, o *perfOptions) error {
	if s := os.Getenv(perfEnv); s != "" {
		if err := json.Unmarshal([]byte(s), o); err != nil {
			return fmt.Errorf("%s: %w", perfEnv, err)
		}
	}
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	if err := launch.Inherit(&cfg.Bootstrap); err != nil {
		return err
	}
	comm, err := collective.New(ctx, cfg)
	if err != nil {
		return err
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
	src, dst tensor.Tensor // the largest size
}

// row is what one size gave.
type row struct {
	Collective string  `json:"collective"`
	Ranks      int     `json:"ranks"`
	Size       int     `json:"size"`
	Count      int     `json:"count"`
	Type       string  `json:"type"`
	RedOp      string  `json:"redop"`
	Root       int     `json:"root"`
	Registered bool    `json:"registered"`
	Iters      int     `json:"iters"`
	Out        timing  `json:"out_of_place"`
	In         *timing `json:"in_place,omitempty"`
}

type timing struct {
	Time  float64 `json:"time"` // µs
	AlgBW float64 `json:"alg_bw"`
	BusBW float64 `json:"bus_bw"`
	Wrong int     `json:"nwrong"`
}

func (p *perf) run(ctx context.Context) (err error) {
	if p.dt, err = tensor.ParseDType(p.o.DType); err != nil {
		return err
	}
	if p.op, err = tensor.ParseOp(p.o.Op); err != nil {
		return err
	}
	sizes := p.o.sizes()
	big := 0
	for _, s := range sizes {
		big = max(big, s)
	}
	if err := p.allocate(ctx, big/p.dt.Size()+p.comm.Size()); err != nil {
		return err
	}
	p.header()
	sum, n, wrong := 0.0, 0, 0
	for _, s := range sizes {
		r, err := p.measure(ctx, s)
		if err != nil {
			return err
		}
		p.print(r)
		for _, t := range []*timing{&r.Out, r.In} {
			if t != nil {
				sum, n, wrong = sum+t.BusBW, n+1, wrong+t.Wrong
			}
		}
	}
	p.footer(sum/float64(max(n, 1)), wrong)
	if wrong > 0 {
		return fmt.Errorf("%d wrong elements", wrong)
	}
	return nil
}

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

// measure times one size out of place and, where that exists, in place.
func (p *perf) measure(ctx context.Context, size int) (*row, error) {
	w := workFor(p, size)
	r := &row{Collective: p.o.Collective, Ranks: p.comm.Size(), Size: w.bytes, Count: w.count, Type: p.dt.String(), RedOp: "none", Root: w.root, Registered: p.o.Alloc}
	if w.reduces {
		r.RedOp = p.op.Name()
	}
	for _, inPlace := range []bool{false, true} {
		if inPlace && w.inPlace == nil {
			break
		}
		call := w.call
		if inPlace {
			call = w.inPlace
		}
		t := timing{Wrong: -1}
		us, iters, err := p.time(ctx, call, w.trips)
		if err != nil {
			return nil, err
		}
		r.Iters = iters
		t.Time = us
		t.AlgBW = float64(w.bytes) / us / 1e3
		t.BusBW = t.AlgBW * w.factor
		t.Wrong = 0
		if p.o.Check && w.verify != nil {
			bad, err := p.check(ctx, w, call, inPlace)
			if err != nil {
				return nil, err
			}
			t.Wrong = bad
		}
		if inPlace {
			r.In = &t
		} else {
			r.Out = t
		}
	}
	return r, nil
}

// time returns the mean time of a call in µs on the slowest rank.
func (p *perf) time(ctx context.Context, call func(context.Context) error, trips int) (us float64, iters int, err error) {
	batch := func(n int) (float64, error) {
		if err := p.comm.Barrier(ctx); err != nil {
			return 0, err
		}
		t := time.Now()
		for range n {
			if err := call(ctx); err != nil {
				return 0, err
			}
		}
		return p.max(ctx, float64(time.Since(t).Nanoseconds())/1e3/float64(n))
	}
	est, err := batch(max(1, min(p.o.Warmup, 1)))
	if err != nil {
		return 0, 0, err
	}
	iters = p.o.Iters
	if iters == 0 {
		budget := float64(p.o.Budget.Microseconds())
		if est, err = batch(max(1, min(20, int(budget/4/est)))); err != nil {
			return 0, 0, err
		}
		iters = max(3, min(20000, int(budget/est)))
		if iters > 8 {
			if est, err = batch(iters / 8); err != nil {
				return 0, 0, err
			}
			iters = max(3, min(20000, int(budget/est)))
		}
	} else if p.o.Warmup > 1 {
		if _, err = batch(p.o.Warmup - 1); err != nil {
			return 0, 0, err
		}
	}
	us, err = batch(iters)
	return us / float64(trips), iters, err
}

// max combines a number over the ranks.
func (p *perf) max(ctx context.Context, v float64) (float64, error) {
	b := []float64{v}
	err := p.comm.AllReduce(ctx, tensor.Of(b), tensor.Of(b), tensor.Max)
	return b[0], err
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

package main

import (
	"context"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gccl/gccl/tensor"
)

// spread is the statistics over single calls, in µs.
type spread struct {
	Min   float64 `json:"min_us"`
	Max   float64 `json:"max_us"`
	Avg   float64 `json:"avg_us"`
	P50   float64 `json:"p50_us"`
	P95   float64 `json:"p95_us"`
	P99   float64 `json:"p99_us"`
	Stdev float64 `json:"stdev_us"`
}

// most calls of one size without -n.
const mostIters = 1_000_000

// settleTime is how long calls are made before the first size is measured. In the first milliseconds of a busy
// process the runtime's watchdog thread wakes up every 0.1 ms beside it.
const settleTime = 10 * time.Millisecond

// time returns the mean time of a call in µs on the slowest rank.
func (p *perf) time(ctx context.Context, call func(context.Context) error, trips int) (us float64, iters int, s *spread, err error) {
	est, err := p.batch(ctx, call, 1)
	for n := 1; err == nil && p.settled < settleTime; n = min(2*n, 1000) {
		est, err = p.batch(ctx, call, n)
		p.settled += time.Duration(max(est, 0.001) * float64(n) * float64(time.Microsecond))
	}
	if err != nil {
		return 0, 0, nil, err
	}
	iters = p.o.Iters
	if iters == 0 {
		budget := float64(p.o.Budget.Microseconds())
		if est, err = p.batch(ctx, call, max(1, min(20, int(budget/4/est)))); err != nil {
			return 0, 0, nil, err
		}
		iters = max(3, min(mostIters, int(budget/est)))
		if iters > 8 {
			if est, err = p.batch(ctx, call, iters/8); err != nil {
				return 0, 0, nil, err
			}
			iters = max(3, min(mostIters, int(budget/est)))
		}
	} else if p.o.Warmup > 1 {
		if _, err = p.batch(ctx, call, p.o.Warmup-1); err != nil {
			return 0, 0, nil, err
		}
	}
	if p.o.Each {
		s, err = p.single(ctx, call, iters, trips)
		if err != nil {
			return 0, 0, nil, err
		}
		return s.Avg, iters, s, nil
	}
	us, err = p.batch(ctx, call, iters)
	return us / float64(trips), iters, nil, err
}

// batch is the mean time of n calls in a row, in µs, on the slowest rank.
func (p *perf) batch(ctx context.Context, call func(context.Context) error, n int) (float64, error) {
	if err := p.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	t := time.Now()
	for range n {
		if err := call(ctx); err != nil {
			return 0, err
		}
	}
	v := []float64{float64(time.Since(t).Nanoseconds()) / 1e3 / float64(n)}
	err := p.comm.AllReduce(ctx, tensor.Of(v), tensor.Of(v), tensor.Max)
	return v[0], err
}

// single times n calls one by one; each counts with the time of the rank where it took longest.
func (p *perf) single(ctx context.Context, call func(context.Context) error, n, trips int) (*spread, error) {
	ns := make([]int64, n)
	if err := p.comm.Barrier(ctx); err != nil {
		return nil, err
	}
	start, before := time.Now(), int64(0)
	for i := range ns {
		if err := call(ctx); err != nil {
			return nil, err
		}
		at := time.Since(start).Nanoseconds() // one look at the clock a call, as perftest has
		ns[i], before = at-before, at
	}
	if err := p.comm.AllReduce(ctx, tensor.Of(ns), tensor.Of(ns), tensor.Max); err != nil {
		return nil, err
	}
	return spreadOf(ns, trips)
}

// spreadOf is the statistics of some times in ns. Percentiles have three digits.
func spreadOf(ns []int64, trips int) (*spread, error) {
	h := hdrhistogram.New(1, int64(time.Hour), 3)
	sum, squares, lo, hi := 0.0, 0.0, ns[0], ns[0]
	for _, v := range ns {
		v = max(1, v)
		if err := h.RecordValue(v); err != nil {
			return nil, err
		}
		sum += float64(v)
		squares += float64(v) * float64(v)
		lo, hi = min(lo, v), max(hi, v)
	}
	n := float64(len(ns))
	us := func(ns float64) float64 { return ns / 1e3 / float64(trips) }
	return &spread{
		Min: us(float64(lo)), Max: us(float64(hi)), Avg: us(sum / n),
		P50: us(float64(h.ValueAtQuantile(50))), P95: us(float64(h.ValueAtQuantile(95))), P99: us(float64(h.ValueAtQuantile(99))),
		Stdev: us(math.Sqrt(max(0, squares/n-sum/n*(sum/n)))),
	}, nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// simMeasure compares the simulator with two ranks on this host. Its parameters are fitted to three collectives of
// sizes between those that are compared, and to local copies and small messages; see fit.
type simMeasure struct {
	Budget time.Duration // of a cell in a round
	Rounds int
}

const (
	measuredRanks = 2
	fitLeast      = 24 << 10 // the sizes of the fit are this times powers of two, up to fitMost
	fitMost       = 96 << 20
)

// fitCollectives are measured at the sizes of the fit. Of each, a rank's buffers have 1.5 times the size.
var fitCollectives = []schedule.Collective{schedule.AllGather, schedule.Scatter, schedule.ReduceScatter}

// comparedCollectives are predicted and measured, at comparedSizes.
var comparedCollectives = []schedule.Collective{
	schedule.AllReduce, schedule.Reduce, schedule.Broadcast, schedule.AllGather, schedule.ReduceScatter,
	schedule.AllToAll, schedule.Gather, schedule.Scatter,
}

func comparedSizes() []int {
	var list []int
	for n := 64 << 10; n <= 64<<20; n *= 4 {
		list = append(list, n)
	}
	return list
}

// cell is one call whose time is taken in several rounds.
type cell struct {
	kind    string
	bytes   int
	trips   int
	call    func(context.Context) error
	samples []int64 // ns of the slower rank
}

// cellOf finds a cell.
func cellOf(cells []*cell, kind string, bytes int) *cell {
	return cells[slices.IndexFunc(cells, func(c *cell) bool { return c.kind == kind && c.bytes == bytes })]
}

// time is the lower quartile in seconds: what else the machine does only makes calls longer.
func (c *cell) time() float64 {
	s := slices.Sorted(slices.Values(c.samples))
	return float64(s[len(s)/4]) / 1e9 / float64(c.trips)
}

// run starts the ranks, or is one of them.
func (o *simMeasure) run(ctx context.Context, out io.Writer) error {
	if os.Getenv(rankEnv) == "" {
		return startRanks(ctx, measuredRanks, o, "sim", "--measure")
	}
	if err := rankOptions(o); err != nil {
		return err
	}
	comm, err := connect(ctx, func(*collective.Config) {})
	if err != nil {
		return err
	}
	if comm.Size() != measuredRanks {
		return fmt.Errorf("%d ranks: need %d", comm.Size(), measuredRanks)
	}
	p := &perf{o: &perfOptions{}, comm: comm, dt: tensor.Float32, op: tensor.Sum}
	if err := p.allocate(ctx, fitMost/p.dt.Size()); err != nil {
		return err
	}
	cells, err := o.cells(ctx, p)
	if err != nil {
		return err
	}
	for range o.Rounds {
		for _, c := range cells {
			if err := o.sample(ctx, p, c); err != nil {
				return fmt.Errorf("%s of %d bytes: %w", c.kind, c.bytes, err)
			}
		}
	}
	if comm.Rank() == 0 {
		if err := printErrors(out, chosen(p), cells); err != nil {
			return err
		}
	}
	return comm.Close()
}

// cells lists what is measured: of the fit, and to compare.
func (o *simMeasure) cells(ctx context.Context, p *perf) ([]*cell, error) {
	self, err := p.comm.Split(ctx, p.comm.Rank(), 0)
	if err != nil {
		return nil, err
	}
	work := func(name string, size int) *cell {
		w := workFor(p, benchmarkNamed(name), size)
		return &cell{kind: name, bytes: w.bytes(), trips: w.trips, call: w.call}
	}
	local := func(size int) *cell {
		n := size / p.dt.Size()
		src, dst := p.src.Slice(0, n), p.dst.Slice(0, n)
		return &cell{kind: "copy", bytes: size, trips: 1, call: func(ctx context.Context) error { return self.Broadcast(ctx, dst, src, 0) }}
	}
	cells := []*cell{work("pingpong", 8), local(8)}
	for n := fitLeast; n <= fitMost; n *= 2 {
		cells = append(cells, local(n*3/4))
		for _, coll := range fitCollectives {
			cells = append(cells, work(coll.String(), n))
		}
	}
	for _, coll := range comparedCollectives {
		for _, n := range comparedSizes() {
			cells = append(cells, work(coll.String(), n))
		}
	}
	return cells, nil
}

// sample times calls of a cell one by one, each after a barrier, as many as the budget permits.
func (o *simMeasure) sample(ctx context.Context, p *perf, c *cell) error {
	n := 3
	if len(c.samples) > 0 {
		n = max(3, min(300, int(float64(o.Budget)/1e9/(c.time()*float64(c.trips)+1e-6))))
	}
	if err := c.call(ctx); err != nil { // what ran before had other data in the caches
		return err
	}
	ns := make([]int64, n)
	for i := range ns {
		if err := p.comm.Barrier(ctx); err != nil {
			return err
		}
		t := time.Now()
		if err := c.call(ctx); err != nil {
			return err
		}
		ns[i] = time.Since(t).Nanoseconds()
	}
	if err := p.comm.AllReduce(ctx, tensor.Of(ns), tensor.Of(ns), tensor.Max); err != nil {
		return err
	}
	c.samples = append(c.samples, ns...)
	return nil
}

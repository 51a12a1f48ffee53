package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// benchmark is what perf can measure.
type benchmark struct {
	name     string
	reduces  bool                // has an operation
	rooted   bool                // has a root
	pairwise bool                // is between ranks 0 and 1; others look on
	blocks   bool                // its larger buffer has a block of each rank
	factor   func(n int) float64 // busbw / algbw of n ranks, as nccl-tests defines it
	fill     func(*work)         // sets the calls, and how to check them
}

// benchmarks are the programs of nccl-tests, and what it lacks.
var benchmarks = []benchmark{
	{name: "allreduce", reduces: true, factor: func(n int) float64 { return 2 * others(n) }, fill: (*work).allReduce},
	{name: "reduce", reduces: true, rooted: true, factor: one, fill: (*work).reduce},
	{name: "broadcast", rooted: true, factor: one, fill: (*work).broadcast},
	{name: "allgather", blocks: true, factor: others, fill: (*work).allGather},
	{name: "reducescatter", reduces: true, blocks: true, factor: others, fill: (*work).reduceScatter},
	{name: "gather", rooted: true, blocks: true, factor: others, fill: (*work).gather},
	{name: "scatter", rooted: true, blocks: true, factor: others, fill: (*work).scatter},
	{name: "alltoall", blocks: true, factor: others, fill: (*work).allToAll},
	{name: "sendrecv", factor: one, fill: (*work).sendRecv},
	{name: "pingpong", pairwise: true, factor: one, fill: (*work).pingPong},
	{name: "stream", pairwise: true, factor: one, fill: (*work).stream},
	{name: "scan", reduces: true, factor: one, fill: (*work).scan},
	{name: "exscan", reduces: true, factor: one, fill: (*work).exscan},
	{name: "barrier", factor: one, fill: (*work).barrier},
}

func one(int) float64 { return 1 }

// others is the share of data that is other ranks'.
func others(n int) float64 { return float64(n-1) / float64(n) }

// benchmarkNames lists what perf can measure.
func benchmarkNames() (names []string) {
	for _, b := range benchmarks {
		names = append(names, b.name)
	}
	return names
}

// benchmarkNamed finds a benchmark, or nil.
func benchmarkNamed(name string) *benchmark {
	i := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == name })
	if i < 0 {
		return nil
	}
	return &benchmarks[i]
}

// refuses says why the operation cannot be measured with the element type.
func (b *benchmark) refuses(dt tensor.DType, op tensor.Op, ranks int) error {
	if !b.reduces {
		return nil
	}
	if op == tensor.Avg && (b.name == "scan" || b.name == "exscan") {
		return fmt.Errorf("%s has no %v", b.name, op)
	}
	_, err := tensor.NewReducer(dt, op, ranks)
	return err
}

// work is one benchmark at one size: what to call, and how to know that the result is right.
type work struct {
	*benchmark
	comm     *collective.Comm
	data     pattern
	me, root int
	count    int // elements of the larger buffer
	block    int // elements of a rank's part of it; all, if it has none
	window   int // stream: messages of a call
	trips    int // one-way messages a call stands for
	src, dst tensor.Tensor

	call    func(context.Context) error
	inPlace func(context.Context) error // nil: there is none
	prepare func(inPlace bool)          // fills in this rank's data, and spoils the destination
	verify  func(inPlace bool) int      // counts wrong elements; nil: nothing to check
}

// workFor builds the work of a size on the buffers of p.
func workFor(p *perf, b *benchmark, size int) *work {
	n := p.comm.Size()
	w := &work{benchmark: b, comm: p.comm, data: pattern{dt: p.dt, op: p.op, n: n}, me: p.comm.Rank(), root: p.root,
		count: size / p.dt.Size(), window: p.o.Window, trips: 1}
	w.block = w.count
	if b.blocks {
		w.block = w.count / n
		w.count = w.block * n
	}
	all := w.count
	if b.pairwise {
		all *= max(1, w.window)
	}
	w.src, w.dst = p.src.Slice(0, all), p.dst.Slice(0, all)
	b.fill(w)
	return w
}

// bytes is the length of the larger buffer.
func (w *work) bytes() int { return w.count * w.data.dt.Size() }

// first is the first block of a buffer, mine this rank's.
func (w *work) first(t tensor.Tensor) tensor.Tensor { return t.Slice(0, w.block) }
func (w *work) mine(t tensor.Tensor) tensor.Tensor {
	return t.Slice(w.me*w.block, (w.me+1)*w.block)
}

// whole prepares a source that is all this rank's.
func (w *work) whole(inPlace bool) {
	w.data.put(pick(inPlace, w.dst, w.src), 0, w.me)
	w.data.spoil(inPlace, w.dst)
}

// apart prepares a source that is not the destination as well.
func (w *work) apart(bool) {
	w.data.spoil(false, w.dst)
	w.data.put(w.src, 0, w.me)
}

// atRoot is a check that the root alone makes.
func (w *work) atRoot(check func() int) func(bool) int {
	return func(bool) int {
		if w.me != w.root {
			return 0
		}
		return check()
	}
}

func (w *work) allReduce() {
	w.call = func(ctx context.Context) error { return w.comm.AllReduce(ctx, w.dst, w.src, w.data.op) }
	w.inPlace = func(ctx context.Context) error { return w.comm.AllReduce(ctx, w.dst, w.dst, w.data.op) }
	w.prepare = w.whole
	w.verify = func(bool) int { return w.data.wrongReduced(w.dst, 0, w.data.n) }
}

func (w *work) reduce() {
	w.call = func(ctx context.Context) error { return w.comm.Reduce(ctx, w.dst, w.src, w.data.op, w.root) }
	w.inPlace = func(ctx context.Context) error { return w.comm.Reduce(ctx, w.dst, w.dst, w.data.op, w.root) }
	w.prepare = w.whole
	w.verify = w.atRoot(func() int { return w.data.wrongReduced(w.dst, 0, w.data.n) })
}

func (w *work) scan() {
	w.call = func(ctx context.Context) error { return w.comm.Scan(ctx, w.dst, w.src, w.data.op) }
	w.inPlace = func(ctx context.Context) error { return w.comm.Scan(ctx, w.dst, w.dst, w.data.op) }
	w.prepare = w.whole
	w.verify = func(bool) int { return w.data.wrongReduced(w.dst, 0, w.me+1) }
}

func (w *work) exscan() {
	w.call = func(ctx context.Context) error { return w.comm.Exscan(ctx, w.dst, w.src, w.data.op) }
	w.inPlace = func(ctx context.Context) error { return w.comm.Exscan(ctx, w.dst, w.dst, w.data.op) }
	w.prepare = w.whole
	w.verify = func(bool) int {
		if w.me == 0 {
			return 0 // its destination stays as it was
		}
		return w.data.wrongReduced(w.dst, 0, w.me)
	}
}

func (w *work) broadcast() {
	w.call = func(ctx context.Context) error { return w.comm.Broadcast(ctx, w.dst, w.src, w.root) }
	w.inPlace = func(ctx context.Context) error { return w.comm.Broadcast(ctx, w.dst, w.dst, w.root) }
	w.prepare = func(inPlace bool) {
		if w.me == w.root {
			w.whole(inPlace)
		} else {
			w.data.spoil(false, w.dst)
		}
	}
	w.verify = func(bool) int { return w.data.wrong(w.dst, 0, w.root) }
}

func (w *work) allGather() {
	w.call = func(ctx context.Context) error { return w.comm.AllGather(ctx, w.dst, w.first(w.src)) }
	w.inPlace = func(ctx context.Context) error { return w.comm.AllGather(ctx, w.dst, w.mine(w.dst)) }
	w.prepare = func(inPlace bool) {
		w.data.spoil(false, w.dst)
		w.data.put(pick(inPlace, w.mine(w.dst), w.first(w.src)), 0, w.me)
	}
	w.verify = func(bool) int { return w.data.wrongBlocks(w.dst, w.block, 0) }
}

func (w *work) reduceScatter() {
	w.call = func(ctx context.Context) error { return w.comm.ReduceScatter(ctx, w.first(w.dst), w.src, w.data.op) }
	w.inPlace = func(ctx context.Context) error { return w.comm.ReduceScatter(ctx, w.mine(w.dst), w.dst, w.data.op) }
	w.prepare = w.whole
	w.verify = func(inPlace bool) int {
		return w.data.wrongReduced(pick(inPlace, w.mine(w.dst), w.first(w.dst)), w.me*w.block, w.data.n)
	}
}

func (w *work) gather() {
	w.call = func(ctx context.Context) error { return w.comm.Gather(ctx, w.dst, w.first(w.src), w.root) }
	w.prepare = w.apart
	w.verify = w.atRoot(func() int { return w.data.wrongBlocks(w.dst, w.block, 0) })
}

func (w *work) scatter() {
	w.call = func(ctx context.Context) error { return w.comm.Scatter(ctx, w.first(w.dst), w.src, w.root) }
	w.prepare = w.apart
	w.verify = func(bool) int { return w.data.wrong(w.first(w.dst), w.me*w.block, w.root) }
}

func (w *work) allToAll() {
	w.call = func(ctx context.Context) error { return w.comm.AllToAll(ctx, w.dst, w.src) }
	w.prepare = func(bool) {
		w.data.spoil(false, w.dst)
		for r := range w.data.n {
			w.data.put(w.src.Slice(r*w.block, (r+1)*w.block), 31*r, w.me)
		}
	}
	w.verify = func(bool) int { return w.data.wrongBlocks(w.dst, w.block, 31*w.me) }
}

func (w *work) sendRecv() {
	next, prev := (w.me+1)%w.data.n, (w.me+w.data.n-1)%w.data.n
	w.call = func(ctx context.Context) error { return w.comm.SendRecv(ctx, w.src, next, w.dst, prev) }
	w.prepare = w.apart
	w.verify = func(bool) int { return w.data.wrong(w.dst, 0, prev) }
}

func (w *work) pingPong() {
	w.trips = 2
	w.call = func(ctx context.Context) error {
		switch w.me {
		case 0:
			if err := w.comm.Send(ctx, w.src, 1); err != nil {
				return err
			}
			return w.comm.Recv(ctx, w.dst, 1)
		case 1:
			if err := w.comm.Recv(ctx, w.dst, 0); err != nil {
				return err
			}
			return w.comm.Send(ctx, w.src, 0)
		}
		return nil
	}
	w.prepare = w.apart
	w.verify = func(bool) int {
		if w.me > 1 {
			return 0
		}
		return w.data.wrong(w.dst, 0, 1-w.me)
	}
}

func (w *work) stream() {
	w.trips = w.window
	var calls []collective.Call
	for i := range w.window {
		lo, hi := i*w.count, (i+1)*w.count
		switch w.me {
		case 0:
			calls = append(calls, collective.Call{Kind: collective.Send, Src: w.src.Slice(lo, hi), Peer: 1})
		case 1:
			calls = append(calls, collective.Call{Kind: collective.Recv, Dst: w.dst.Slice(lo, hi), Peer: 0})
		}
	}
	w.call = func(ctx context.Context) error {
		switch {
		case len(calls) > 1:
			return w.comm.Group(ctx, calls...)
		case w.me == 0:
			return w.comm.Send(ctx, w.src, 1)
		case w.me == 1:
			return w.comm.Recv(ctx, w.dst, 0)
		}
		return nil
	}
	w.prepare = w.apart
	w.verify = func(bool) int {
		if w.me != 1 {
			return 0
		}
		return w.data.wrong(w.dst, 0, 0)
	}
}

func (w *work) barrier() { w.call = w.comm.Barrier }

func pick(second bool, b, a tensor.Tensor) tensor.Tensor {
	if second {
		return b
	}
	return a
}

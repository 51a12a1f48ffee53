package main

import (
	"context"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// work is one collective at one size: how to call it and what it must give.
type work struct {
	bytes, count int // of the larger buffer
	root         int
	reduces      bool
	factor       float64 // busbw / algbw
	trips        int     // one-way messages a call stands for (pingpong: 2; stream: the window)
	call         func(context.Context) error
	inPlace      func(context.Context) error
	prepare      func(inPlace bool)
	verify       func(inPlace bool) int
}

// workFor builds the work of a size. Data: element i of rank r is (i + 17r) mod 5, whose sums and
// products are exact (see pattern).
func workFor(p *perf, size int) *work {
	n, me, es := p.comm.Size(), p.comm.Rank(), p.dt.Size()
	w := &work{count: size / es, root: -1, factor: 1, trips: 1}
	blocks := false
	switch p.o.Collective {
	case "allgather", "reducescatter", "alltoall", "gather", "scatter":
		w.count = w.count / n * n
		w.factor = float64(n-1) / float64(n)
		blocks = true
	case "allreduce":
		w.factor = 2 * float64(n-1) / float64(n)
	}
	w.bytes = w.count * es
	per := w.count
	if blocks {
		per = w.count / n
	}
	src, dst := p.src.Slice(0, w.count), p.dst.Slice(0, w.count)
	mine := func(t tensor.Tensor) tensor.Tensor { return t.Slice(me*per, (me+1)*per) }
	small := func(t tensor.Tensor) tensor.Tensor { return t.Slice(0, per) }
	switch p.o.Collective {
	case "reduce", "broadcast", "gather", "scatter":
		w.root = p.root
	}
	root := p.root
	c := p.comm
	pat := pattern{dt: p.dt, op: p.op, n: n}
	switch p.o.Collective {
	case "allreduce":
		w.reduces = true
		w.call = func(ctx context.Context) error { return c.AllReduce(ctx, dst, src, p.op) }
		w.inPlace = func(ctx context.Context) error { return c.AllReduce(ctx, dst, dst, p.op) }
		w.prepare = func(ip bool) { pat.put(pick(ip, dst, src), 0, me); pat.spoil(ip, dst) }
		w.verify = func(bool) int { return pat.wrongReduced(dst, 0, n) }
	case "reduce":
		w.reduces = true
		w.call = func(ctx context.Context) error { return c.Reduce(ctx, dst, src, p.op, root) }
		w.inPlace = func(ctx context.Context) error { return c.Reduce(ctx, dst, dst, p.op, root) }
		w.prepare = func(ip bool) { pat.put(pick(ip, dst, src), 0, me); pat.spoil(ip, dst) }
		w.verify = func(bool) int {
			if me != root {
				return 0
			}
			return pat.wrongReduced(dst, 0, n)
		}
	case "scan":
		w.reduces = true
		w.call = func(ctx context.Context) error { return c.Scan(ctx, dst, src, p.op) }
		w.inPlace = func(ctx context.Context) error { return c.Scan(ctx, dst, dst, p.op) }
		w.prepare = func(ip bool) { pat.put(pick(ip, dst, src), 0, me); pat.spoil(ip, dst) }
		w.verify = func(bool) int { return pat.wrongReduced(dst, 0, me+1) }
	case "exscan":
		w.reduces = true
		w.call = func(ctx context.Context) error { return c.Exscan(ctx, dst, src, p.op) }
		w.inPlace = func(ctx context.Context) error { return c.Exscan(ctx, dst, dst, p.op) }
		w.prepare = func(ip bool) { pat.put(pick(ip, dst, src), 0, me); pat.spoil(ip, dst) }
		w.verify = func(bool) int {
			if me == 0 {
				return 0 // its destination stays as it was
			}
			return pat.wrongReduced(dst, 0, me)
		}
	case "broadcast":
		w.call = func(ctx context.Context) error { return c.Broadcast(ctx, dst, src, root) }
		w.inPlace = func(ctx context.Context) error { return c.Broadcast(ctx, dst, dst, root) }
		w.prepare = func(ip bool) {
			pat.spoil(ip && me == root, dst)
			if me == root {
				pat.put(pick(ip, dst, src), 0, root)
			}
		}
		w.verify = func(bool) int { return pat.wrong(dst, 0, root) }
	case "allgather":
		w.call = func(ctx context.Context) error { return c.AllGather(ctx, dst, small(src)) }
		w.inPlace = func(ctx context.Context) error { return c.AllGather(ctx, dst, mine(dst)) }
		w.prepare = func(ip bool) {
			pat.spoil(false, dst)
			pat.put(pick(ip, mine(dst), small(src)), 0, me)
		}
		w.verify = func(bool) int { return pat.wrongBlocks(dst, per, 0) }
	case "reducescatter":
		w.reduces = true
		w.call = func(ctx context.Context) error { return c.ReduceScatter(ctx, small(dst), src, p.op) }
		w.inPlace = func(ctx context.Context) error { return c.ReduceScatter(ctx, mine(dst), dst, p.op) }
		w.prepare = func(ip bool) { pat.spoil(ip, dst); pat.put(pick(ip, dst, src), 0, me) }
		w.verify = func(ip bool) int { return pat.wrongReduced(pick(ip, mine(dst), small(dst)), me*per, n) }
	case "gather":
		w.call = func(ctx context.Context) error { return c.Gather(ctx, dst, small(src), root) }
		w.prepare = func(bool) { pat.spoil(false, dst); pat.put(small(src), 0, me) }
		w.verify = func(bool) int {
			if me != root {
				return 0
			}
			return pat.wrongBlocks(dst, per, 0)
		}
	case "scatter":
		w.call = func(ctx context.Context) error { return c.Scatter(ctx, small(dst), src, root) }
		w.prepare = func(bool) { pat.spoil(false, dst); pat.put(src, 0, root) }
		w.verify = func(bool) int { return pat.wrong(small(dst), me*per, root) }
	case "alltoall":
		w.call = func(ctx context.Context) error { return c.AllToAll(ctx, dst, src) }
		w.prepare = func(bool) {
			pat.spoil(false, dst)
			for r := range n {
				pat.put(src.Slice(r*per, (r+1)*per), 31*r, me)
			}
		}
		w.verify = func(bool) int { return pat.wrongBlocks(dst, per, 31*me) }
	case "sendrecv":
		next, prev := (me+1)%n, (me+n-1)%n
		w.call = func(ctx context.Context) error { return c.SendRecv(ctx, src, next, dst, prev) }
		w.prepare = func(bool) { pat.spoil(false, dst); pat.put(src, 0, me) }
		w.verify = func(bool) int { return pat.wrong(dst, 0, prev) }
	case "pingpong":
		w.trips = 2
		w.call = func(ctx context.Context) error {
			if me > 1 {
				return nil
			}
			if me == 0 {
				if err := c.Send(ctx, src, 1); err != nil {
					return err
				}
				return c.Recv(ctx, dst, 1)
			}
			if err := c.Recv(ctx, dst, 0); err != nil {
				return err
			}
			return c.Send(ctx, src, 0)
		}
		w.prepare = func(bool) { pat.spoil(false, dst); pat.put(src, 0, me) }
		w.verify = func(bool) int {
			if me > 1 {
				return 0
			}
			return pat.wrong(dst, 0, 1-me)
		}
	case "stream":
		w.trips = p.o.Window
		all := w.trips * w.count
		src, dst := p.src.Slice(0, all), p.dst.Slice(0, all)
		var calls []collective.Call
		for i := range w.trips {
			lo, hi := i*w.count, (i+1)*w.count
			switch me {
			case 0:
				calls = append(calls, collective.Call{Kind: collective.Send, Src: src.Slice(lo, hi), Peer: 1})
			case 1:
				calls = append(calls, collective.Call{Kind: collective.Recv, Dst: dst.Slice(lo, hi), Peer: 0})
			}
		}
		w.call = func(ctx context.Context) error {
			switch {
			case len(calls) > 1:
				return c.Group(ctx, calls...)
			case me == 0:
				return c.Send(ctx, src, 1)
			case me == 1:
				return c.Recv(ctx, dst, 0)
			}
			return nil
		}
		w.prepare = func(bool) { pat.spoil(false, dst); pat.put(src, 0, me) }
		w.verify = func(bool) int {
			if me != 1 {
				return 0
			}
			return pat.wrong(dst, 0, 0)
		}
	case "barrier":
		w.call = c.Barrier
	}
	return w
}

func pick(second bool, b, a tensor.Tensor) tensor.Tensor {
	if second {
		return b
	}
	return a
}

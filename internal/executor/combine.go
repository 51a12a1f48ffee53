package executor

import (
	"time"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// scaleBlock is how much of scaled operands is kept in temporaries at a time.
const scaleBlock = 16 << 10

// combine computes n bytes of an action's value into every destination.
func (e *Engine) combine(l *lane, a *action, dsts, srcs [][]byte, n int) {
	if n == 0 {
		return
	}
	if len(a.sends) > 0 && n >= storeMin && a.sendTo[0].Mapped() {
		st := &e.stores[a.sendTo[0].Rank]
		if past, timed := st.next(); timed {
			t := time.Now()
			e.combineBy(l, a, dsts, srcs, n, past)
			st.took(past, n, time.Since(t))
			return
		} else if past {
			e.combineBy(l, a, dsts, srcs, n, past)
			return
		}
	}
	e.combineBy(l, a, dsts, srcs, n, false)
}

// combineBy does it, writing what is sent past the cache or through it.
func (e *Engine) combineBy(l *lane, a *action, dsts, srcs [][]byte, n int, past bool) {
	red := l.job.Args.Reducer
	if past && e.combinePast(l, a, dsts, srcs, n) {
		return
	}
	if red == nil || len(srcs) == 1 && !red.HasPre() && !(a.final && red.HasPost()) {
		src := srcs[0]
		for i := len(dsts) - 1; i >= 0; i-- { // the local one last, which src may overlap (link.Receiver.Expect)
			if d := dsts[i]; &d[0] != &src[0] {
				copy(d, src)
			}
		}
		return
	}
	pre, post := red.HasPre(), a.final && red.HasPost()
	if !pre && !post && !a.nested {
		red.Reduce(dsts, srcs)
		return
	}
	e.scaled(l, a, dsts, srcs, n, pre, post)
}

// scaled does the same, block by block, where contributions are scaled before, the result after, or
// the operands are no fold from the left.
func (e *Engine) scaled(l *lane, a *action, dsts, srcs [][]byte, n int, pre, post bool) {
	red := l.job.Args.Reducer
	for len(e.blocks) < len(srcs)+1 {
		e.blocks = append(e.blocks, make([]byte, scaleBlock))
		e.scaledOps = make([][]byte, len(e.blocks))
	}
	ops := e.scaledOps[:len(srcs)]
	for off := 0; off < n; off += scaleBlock {
		end := min(n, off+scaleBlock)
		for i := range srcs {
			ops[i] = srcs[i][off:end]
			if o := &a.operands[i]; pre && o.recv < 0 && o.ext.buf == schedule.In {
				t := e.blocks[i][:end-off]
				red.Pre(t, ops[i])
				ops[i] = t
			}
		}
		t := e.blocks[len(srcs)][:end-off]
		e.fold(red, a, t, ops)
		if post {
			red.Post(t)
		}
		for _, d := range dsts {
			copy(d[off:end], t)
		}
	}
}

// fold combines operands into t.
func (e *Engine) fold(red *tensor.Reducer, a *action, t []byte, ops [][]byte) {
	e.scaledDst[0] = t
	if !a.nested {
		red.Reduce(e.scaledDst[:], ops)
		return
	}
	e.pair[0], e.pair[1] = ops[0], ops[1]
	red.Reduce(e.scaledDst[:], e.pair[:])
	for i := 2; i < len(ops); i++ {
		e.pair[0], e.pair[1] = t, ops[i]
		if a.operands[i].left {
			e.pair[0], e.pair[1] = ops[i], t
		}
		red.Reduce(e.scaledDst[:], e.pair[:])
	}
}

// pastBlock is what is reduced into the cache before it is copied past it.
const pastBlock = 16 << 10

// combinePast is combineBy past the cache. It reports false where that is not to be had: operands
// that are scaled or no fold from the left.
func (e *Engine) combinePast(l *lane, a *action, dsts, srcs [][]byte, n int) bool {
	red := l.job.Args.Reducer
	if a.nested || red != nil && (red.HasPre() || a.final && red.HasPost()) {
		return false
	}
	local := 0 // 1 if the value is kept here, too
	if a.keeps() {
		local = 1
	}
	if len(srcs) == 1 {
		e.copier.ReduceNT(dsts[local:], srcs)
		if local == 1 && &dsts[0][0] != &srcs[0][0] {
			copy(dsts[0], srcs[0])
		}
		return true
	}
	if local == 0 {
		red.ReduceNT(dsts, srcs)
		return true
	}
	ops := e.pastOps[:len(srcs)]
	outs := e.pastOuts[:len(dsts)-1]
	for off := 0; off < n; off += pastBlock {
		end := min(n, off+pastBlock)
		for i := range srcs {
			ops[i] = srcs[i][off:end]
		}
		e.scaledDst[0] = dsts[0][off:end]
		red.Reduce(e.scaledDst[:], ops)
		for i := range outs {
			outs[i] = dsts[1+i][off:end]
		}
		e.copier.ReduceNT(outs, e.scaledDst[:])
	}
	return true
}

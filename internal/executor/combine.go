package executor

import (
	"time"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/link"
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
	leave := a.leaves && l.leaves(dsts, srcs, n)
	if len(a.sends) == 0 || n < storeMin || !a.sendTo[0].Mapped() ||
		&srcs[0][0] == &dsts[0][0] { // as where it was read in a peer's process: nothing is stored
		e.combineBy(l, a, dsts, srcs, n, ways{leave: leave})
		return
	}
	st := &e.stores[a.sendTo[0].Rank]
	past, timed := st.next()
	if !timed {
		e.combineBy(l, a, dsts, srcs, n, ways{past, leave})
		return
	}
	t := time.Now()
	e.combineBy(l, a, dsts, srcs, n, ways{past, leave})
	st.took(past, n, time.Since(t))
}

// ways is which destinations are written past the cache: those that are sent, the one that is kept.
type ways struct{ past, leave bool }

// local is how many of the destinations are here: the first, if the value is kept.
func (a *action) local() int {
	if a.keeps() {
		return 1
	}
	return 0
}

// fetchMost is the longest piece whose lines at a peer are fetched before they are written. Stores wait one after the other
// for lines that the peer has read last; fetches wait together (two loops between near cores, 4 KiB one way: 286 ns without, 230 with).
const fetchMost = 8 << 10

// combineBy does it.
func (e *Engine) combineBy(l *lane, a *action, dsts, srcs [][]byte, n int, w ways) {
	red := l.job.Args.Reducer
	if w.past && e.combinePast(l, a, dsts, srcs, n, w.leave) {
		return
	}
	if n > link.BriefBytes && n <= fetchMost && len(a.sends) > 0 && a.sendTo[0].Mapped() {
		for _, d := range dsts[a.local():] {
			cpu.PrefetchWriteAll(d)
		}
	}
	pre, post := red != nil && red.HasPre(), red != nil && a.final && red.HasPost()
	switch {
	case red == nil || len(srcs) == 1 && !pre && !post:
		e.copies(dsts, srcs[0], w.leave)
	case pre || post || a.nested:
		e.scaled(l, a, dsts, srcs, n, pre, post, w.leave)
	case w.leave && len(dsts) == 1:
		red.ReduceNT(dsts, srcs)
	default:
		red.Reduce(dsts, srcs)
	}
}

// copies copies src to all destinations, to the first past the cache if leave.
func (e *Engine) copies(dsts [][]byte, src []byte, leave bool) {
	for i := len(dsts) - 1; i >= 0; i-- { // the local one last, which src may overlap (link.Receiver.Expect)
		switch d := dsts[i]; {
		case &d[0] == &src[0]:
		case leave && i == 0:
			e.copyPast(d, src)
		default:
			copy(d, src)
		}
	}
}

// copyPast copies src to dst past the cache.
func (e *Engine) copyPast(dst, src []byte) {
	e.scaledDst[0], e.pair[0] = dst, src
	e.copier.ReduceNT(e.scaledDst[:], e.pair[:1])
}

// scaled does the same, block by block, where contributions are scaled before, the result after, or
// the operands are no fold from the left.
func (e *Engine) scaled(l *lane, a *action, dsts, srcs [][]byte, n int, pre, post, leave bool) {
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
		for i, d := range dsts {
			if leave && i == 0 {
				e.copyPast(d[off:end], t)
			} else {
				copy(d[off:end], t)
			}
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
func (e *Engine) combinePast(l *lane, a *action, dsts, srcs [][]byte, n int, leave bool) bool {
	red := l.job.Args.Reducer
	if a.nested || red != nil && (red.HasPre() || a.final && red.HasPost()) {
		return false
	}
	local := a.local()
	if len(srcs) == 1 {
		e.copier.ReduceNT(dsts[local:], srcs)
		e.copies(dsts[:local], srcs[0], leave)
		return true
	}
	if local == 0 {
		red.ReduceNT(dsts, srcs)
		return true
	}
	ops, outs := e.pastOps[:len(srcs)], dsts[1:]
	if leave {
		outs = dsts
		if e.pastMem == nil {
			e.pastMem = make([]byte, pastBlock)
		}
	}
	for off := 0; off < n; off += pastBlock {
		end := min(n, off+pastBlock)
		for i := range srcs {
			ops[i] = srcs[i][off:end]
		}
		t := dsts[0][off:end]
		if leave {
			t = e.pastMem[:end-off]
		}
		e.scaledDst[0] = t
		red.Reduce(e.scaledDst[:], ops)
		for _, d := range outs { // one by one: they need not lie alike in their cache lines
			e.copyPast(d[off:end], t)
		}
	}
	return true
}

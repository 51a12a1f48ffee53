package executor

import (
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
	red := l.job.Args.Reducer
	if red == nil || len(srcs) == 1 && !red.HasPre() && !(a.final && red.HasPost()) {
		src := srcs[0]
		for _, d := range dsts {
			if &d[0] != &src[0] {
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

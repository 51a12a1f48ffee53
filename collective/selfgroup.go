package collective

import (
	"context"
	"fmt"
	"time"

	"github.com/gccl/gccl/tensor"
)

// selfGroup is the control plane of a communicator over its own links, for what is agreed after it
// has been made. Its user holds the turn.
//
// An exchange that has begun is finished, even if its context ends, as long as the others do their part within overtime; else it
// breaks the communicator, as a call does: the ranks would else be out of step.
type selfGroup struct {
	c     *Comm
	begun bool // this exchange goes on with what others have begun, too
}

// run makes a call, unless ctx has ended before anything has begun.
func (g selfGroup) run(ctx context.Context, call *Call) error {
	if g.begun {
		var cancel context.CancelFunc
		ctx, cancel = withOvertime(ctx)
		defer cancel()
	}
	g.c.outside.Lock()
	defer g.c.outside.Unlock()
	return g.c.run(ctx, call)
}

// overtime is how long an exchange that has begun goes on when its context has ended.
const overtime = 10 * time.Second

// extended is a context that has ended when first had.
type extended struct {
	context.Context
	first context.Context
}

// Err implements context.Context.
func (l extended) Err() error {
	if l.Context.Err() != nil && l.first.Err() != nil {
		return l.first.Err()
	}
	return l.Context.Err()
}

// withOvertime returns a context that ends when ctx has ended, or overtime begins, for so long.
func withOvertime(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(overtime)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-out.Done():
		}
	})
	return extended{out, ctx}, func() {
		stop()
		cancel(nil)
	}
}

// Rank implements bootstrap.Group.
func (g selfGroup) Rank() int { return g.c.rank }

// Size implements bootstrap.Group.
func (g selfGroup) Size() int { return g.c.size }

// AllGather implements bootstrap.Group: the lengths first, then the bytes.
func (g selfGroup) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	lengths := make([]int64, g.c.size)
	own := []int64{int64(len(mine))}
	if err := g.run(ctx, &Call{Kind: AllGather, Dst: tensor.Of(lengths), Src: tensor.Of(own)}); err != nil {
		return nil, err
	}
	g.begun = true
	counts := make([]int, g.c.size)
	total := 0
	for r, n := range lengths {
		if n < 0 || n > maxControl {
			return nil, fmt.Errorf("%w: rank %d announces %d bytes", ErrInternal, r, n)
		}
		counts[r] = int(n)
		total += int(n)
	}
	all := make([]byte, total)
	if err := g.run(ctx, &Call{Kind: AllGather, Dst: tensor.Of(all), Src: tensor.Of(mine), Counts: counts}); err != nil {
		return nil, err
	}
	out := make([][]byte, g.c.size)
	for r, n := range counts {
		out[r], all = all[:n:n], all[n:]
	}
	return out, nil
}

// maxControl bounds what one rank may say.
const maxControl = 1 << 28

// Barrier implements bootstrap.Group.
func (g selfGroup) Barrier(ctx context.Context) error { return g.run(ctx, &Call{Kind: Barrier}) }

// Close implements bootstrap.Group; the communicator closes itself.
func (g selfGroup) Close() error { return nil }

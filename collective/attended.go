package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gccl/gccl/internal/executor"
)

// unbroken returns a context that ends with ctx or when the communicator breaks, as it does when it is closed meanwhile.
func (c *Comm) unbroken(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.intact, func() { cancel(context.Cause(c.intact)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// attended makes an operation's part that waits for something outside the engine while this rank has the turn, and after which
// all ranks must take part in something more. The context that it is given ends with ctx, and when the communicator breaks. Meanwhile
// the links are looked after, and a rank that is found lost or silent breaks the communicator. The part uses the mesh only with
// c.outside held.
func (c *Comm) attended(ctx context.Context, what string, part func(context.Context) error) error {
	ctx, cancel := c.unbroken(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { c.attend(ctx, what) })
	err := part(ctx)
	cancel()
	watch.Wait()
	if e := c.usable(); err != nil && e != nil {
		return noting(e, err)
	}
	return err
}

// noting is an error with another that came of it, or led to it, in parentheses; or the other alone, where that says both.
func noting(err, other error) error {
	if errors.Is(other, err) {
		return other
	}
	return fmt.Errorf("%w (%v)", err, other)
}

// both is two errors, without the second where the first says it: why the communicator broke is the error of
// whatever is tried afterwards, too.
func both(first, second error) error {
	if second != nil && errors.Is(first, second) {
		return first
	}
	return errors.Join(first, second)
}

// attend looks after the links until ctx ends.
func (c *Comm) attend(ctx context.Context, what string) {
	timer := time.NewTimer(firstTend)
	defer timer.Stop()
	for pause := firstTend; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if c.outside.TryLock() { // else the engine does the same
			if err := c.look(); err != nil {
				_ = c.failIn(what, c.seq+1, err) // which ends ctx
			}
			c.outside.Unlock()
		}
		pause = min(2*pause, lastTend)
		timer.Reset(pause)
	}
}

// look tends the links and returns why the ranks cannot go on together, or nil.
func (c *Comm) look() error {
	err := c.engine.Tend()
	for r := 0; r < c.size && err == nil; r++ {
		err = c.lookAt(r)
	}
	return err
}

// lookAt returns why a rank will answer nothing more, or nil.
func (c *Comm) lookAt(rank int) error {
	p := c.mesh.Peer(rank)
	if p == nil {
		return nil
	}
	if silence := c.silence(); silence > 0 {
		p.Listen(time.Now(), silence)
	}
	if n := p.Gone(); n != nil {
		return &executor.Gone{Notice: n}
	}
	return nil
}

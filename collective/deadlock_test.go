package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// RunDeadlockPatterns runs what deadlocks where sends wait for receives, and communicators for one
// another, on one rank of each of two communicators of the same ranks. All of it completes but the last
// pattern, which nobody can make complete: it must end with an error that says who waits for whom. Both
// communicators are broken then.
func RunDeadlockPatterns(ctx context.Context, a, b *Comm) error {
	for _, n := range []int{1, 100_000} {
		if err := allSendFirst(ctx, a, n); err != nil {
			return fmt.Errorf("all send first, %d: %w", n, err)
		}
		if err := crossedSends(ctx, a, n); err != nil {
			return fmt.Errorf("crossed sends, %d: %w", n, err)
		}
		if err := startedInOppositeOrder(ctx, a, b, n); err != nil {
			return fmt.Errorf("two communicators in opposite order, %d: %w", n, err)
		}
	}
	return blockedInOppositeOrder(ctx, a, b)
}

// allSendFirst: everybody sends to everybody, then receives.
func allSendFirst(ctx context.Context, c *Comm, n int) error {
	for p := range c.size {
		if p == c.rank {
			continue
		}
		if err := c.Send(ctx, tensor.Of(ramp(n, 1000*c.rank+p)), p); err != nil {
			return err
		}
	}
	for p := range c.size {
		if p == c.rank {
			continue
		}
		if err := receives(ctx, c, n, 1000*p+c.rank, p); err != nil {
			return err
		}
	}
	return nil
}

// crossedSends: rank r sends two messages to its neighbour before it takes the first of its other one's,
// with a barrier in between.
func crossedSends(ctx context.Context, c *Comm, n int) error {
	to, from := (c.rank+1)%c.size, (c.rank+c.size-1)%c.size
	for i := range 2 {
		if err := c.Send(ctx, tensor.Of(ramp(n, 10*c.rank+i)), to); err != nil {
			return err
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for i := range 2 {
		if err := receives(ctx, c, n, 10*from+i, from); err != nil {
			return err
		}
	}
	return nil
}

func receives(ctx context.Context, c *Comm, n, base, from int) error {
	got := make([]int32, n)
	if err := c.Recv(ctx, tensor.Of(got), from); err != nil {
		return err
	}
	for i, v := range got {
		if v != int32(base+i) {
			return fmt.Errorf("element %d from rank %d is %d, want %d", i, from, v, base+i)
		}
	}
	return nil
}

// startedInOppositeOrder: one half of the ranks starts a call on a and then one on b, the other half the
// other way round; each waits for both. And the same with a goroutine for each communicator.
func startedInOppositeOrder(ctx context.Context, a, b *Comm, n int) error {
	x, y := make([]float32, n), make([]float32, n)
	call := func(v []float32) Call {
		return Call{Kind: AllReduce, Src: tensor.Of(v), Dst: tensor.Of(v), Op: tensor.Sum}
	}
	first, second := a, b
	if a.rank%2 == 1 {
		first, second = b, a
	}
	for range 2 {
		h, k := first.Start(ctx, call(x)), second.Start(ctx, call(y))
		if err := errors.Join(h.Wait(ctx), k.Wait(ctx)); err != nil {
			return err
		}
		done := make(chan error)
		go func() { done <- first.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum) }()
		if err := errors.Join(second.AllReduce(ctx, tensor.Of(y), tensor.Of(y), tensor.Sum), <-done); err != nil {
			return err
		}
	}
	return nil
}

// blockedInOppositeOrder: as before, but each call blocks the only goroutine of its rank.
func blockedInOppositeOrder(ctx context.Context, a, b *Comm) error {
	first, second := a, b
	if a.rank%2 == 1 {
		first, second = b, a
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err := errors.Join(first.Barrier(short), second.Barrier(short))
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrGaveUp) {
		return fmt.Errorf("blocked in opposite order: %v", err)
	}
	if !strings.Contains(err.Error(), "waited for rank") {
		return fmt.Errorf("the error does not say who waits for whom: %w", err)
	}
	return nil
}

func TestDeadlockPatterns(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, wire := range []bool{false, true} {
			cfg := Config{Timeout: 20 * time.Second, BufferBytes: 16 << 10, noMap: wire}
			a, b := localBroken(t, n, cfg), localBroken(t, n, cfg)
			each(t, a, func(c *Comm) error { return RunDeadlockPatterns(t.Context(), c, b[c.rank]) })
		}
	}
}

// A group's error names the call that failed, wherever in the group it stands.
func TestGroupErrorNamesTheCall(t *testing.T) {
	for _, wire := range []bool{false, true} {
		comms := localBroken(t, 3, Config{Timeout: 20 * time.Second, noMap: wire})
		errs := make([]error, 3)
		each(t, comms, func(c *Comm) error {
			x, y, z := make([]float32, 64), make([]int32, 10), make([]int32, 10)
			count := 10
			if c.rank == 2 {
				count = 9
			}
			errs[c.rank] = c.Group(t.Context(),
				Call{Kind: AllReduce, Src: tensor.Of(x), Dst: tensor.Of(x), Op: tensor.Sum},
				Call{Kind: Send, Src: tensor.Of(y[:count]), Peer: (c.rank + 1) % 3},
				Call{Kind: Recv, Dst: tensor.Of(z), Peer: (c.rank + 2) % 3})
			return nil
		})
		require.ErrorIs(t, errs[0], ErrMismatch)
		require.ErrorContains(t, errs[0], "recv(int32[10], from 2)")
	}
}

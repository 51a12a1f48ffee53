package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/bootstrap/store"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

// testTime is how long a test waits at most for what is a matter of milliseconds, on a machine that is busy.
const testTime = time.Minute

// patient bounds what a test waits for, so that a hang is a failure that says where.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTime, fmt.Errorf("%s has waited for %v", t.Name(), testTime))
	t.Cleanup(cancel)
	return ctx
}

// next takes one of what comes, which what says.
func next[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(2 * testTime): // later than the contexts, which know more
		require.FailNow(t, "waited in vain for "+what)
	}
	panic("unreachable")
}

// recovered calls f on some ranks at once and returns what each got.
func recovered(comms []*Comm, f func(c *Comm) (*Comm, error)) ([]*Comm, []error) {
	out, errs := make([]*Comm, len(comms)), make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() { out[i], errs[i] = f(c) })
	}
	wg.Wait()
	return out, errs
}

func closeAll(t *testing.T, comms ...*Comm) {
	t.Helper()
	for _, c := range comms {
		require.NoError(t, c.Close())
	}
}

// sums checks an AllReduce.
func sums(t *testing.T, comms []*Comm) {
	t.Helper()
	each(t, comms, func(c *Comm) error {
		x := []int64{1, int64(c.Rank())}
		err := c.AllReduce(patient(t), tensor.Of(x), tensor.Of(x), tensor.Sum)
		n := int64(len(comms))
		require.Equal(t, []int64{n, n * (n - 1) / 2}, x)
		return err
	})
}

// Ranks leave one after the other, rank 0 first; the others shrink each time. Nothing is left.
func TestShrinkOfGoroutines(t *testing.T) {
	defer goleak.VerifyNone(t)
	comms, err := NewLocal(patient(t), 5, Config{Timeout: 20 * time.Second})
	require.NoError(t, err)
	for generation := uint64(1); len(comms) > 1; generation++ {
		sums(t, comms)
		gone := (len(comms) + 1) % 3 % len(comms)
		require.NoError(t, comms[gone].Close())
		old := without(comms, gone)
		survivors, errs := recovered(old, func(c *Comm) (*Comm, error) { return c.Shrink(patient(t)) })
		require.NoError(t, errors.Join(errs...))
		for i, c := range survivors {
			require.Equal(t, i, c.Rank())
			require.Equal(t, len(old), c.Size())
			require.Equal(t, generation, c.Generation())
			want := i
			if i >= gone {
				want++
			}
			require.Equal(t, want, c.Former(i))
			require.Equal(t, gone, old[i].Failed()[0].Rank)
		}
		_, err := old[0].Shrink(patient(t))
		require.ErrorIs(t, err, ErrInvalid, "it can only be closed")
		if generation%2 == 0 { // in either order
			closeAll(t, old...)
		} else {
			defer closeAll(t, old...)
		}
		comms = survivors
	}
	lone, err := comms[0].Shrink(patient(t))
	require.NoError(t, err)
	require.Equal(t, 1, lone.Size())
	closeAll(t, comms[0], lone)
}

func without(comms []*Comm, i int) []*Comm {
	return append(append([]*Comm(nil), comms[:i]...), comms[i+1:]...)
}

// Shrink with all ranks alive, after one gave a call up, makes a communicator of all.
func TestShrinkRepairs(t *testing.T) {
	defer goleak.VerifyNone(t)
	comms, err := NewLocal(patient(t), 3, Config{Timeout: 20 * time.Second})
	require.NoError(t, err)
	comms[1].Abort("test")
	again, errs := recovered(comms, func(c *Comm) (*Comm, error) {
		if c.Rank() != 2 {
			return c.Shrink(patient(t))
		}
		err := c.Barrier(patient(t)) // rank 2 learns of it in a call
		for err == nil {
			err = c.Barrier(patient(t))
		}
		if !errors.Is(err, ErrGaveUp) && !errors.Is(err, ErrRevoked) { // whichever it hears of first
			return nil, err
		}
		return c.Shrink(patient(t))
	})
	require.NoError(t, errors.Join(errs...))
	sums(t, again)
	closeAll(t, comms...)
	closeAll(t, again...)
}

// Revoke ends the calls of all ranks; Agree works before and after, with and without a rank that is gone.
func TestRevokeAndAgree(t *testing.T) {
	defer goleak.VerifyNone(t)
	comms, err := NewLocal(patient(t), 4, Config{Timeout: 20 * time.Second})
	require.NoError(t, err)
	agree := func(comms []*Comm, want uint64) {
		each(t, comms, func(c *Comm) error {
			got, err := c.Agree(patient(t), ^uint64(0)^1<<c.Rank())
			require.Equal(t, want, got)
			return err
		})
	}
	agree(comms, ^uint64(0b1111))
	sums(t, comms)
	ended := make(chan error)
	go func() { ended <- comms[0].Barrier(patient(t)) }()
	comms[1].Revoke(errors.New("enough"))
	err = next(t, ended, "the end of the barrier")
	require.ErrorIs(t, err, ErrRevoked)
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, "enough")
	agree(comms, ^uint64(0b1111))
	require.NoError(t, comms[2].Close())
	agree(without(comms, 2), ^uint64(0b1011))
	require.Len(t, comms[3].Failed(), 1)
	_, err = comms[2].Agree(patient(t), 0)
	require.ErrorIs(t, err, ErrClosed)
	closeAll(t, comms...)
}

// Some agree while others shrink: all learn of it.
func TestAgreeAgainstShrink(t *testing.T) {
	comms := localBroken(t, 2, Config{Timeout: 20 * time.Second})
	_, errs := recovered(comms, func(c *Comm) (*Comm, error) {
		if c.Rank() == 0 {
			return c.Shrink(patient(t))
		}
		_, err := c.Agree(patient(t), 1)
		return nil, err
	})
	for _, err := range errs {
		require.ErrorIs(t, err, ErrMismatch)
	}
}

// A rank that does not come keeps the others no longer than their contexts; a rank whose context ends is
// out, and the others go on without it. Close ends a Shrink.
func TestShrinkIsBounded(t *testing.T) {
	defer goleak.VerifyNone(t)
	comms, err := NewLocal(patient(t), 3, Config{Timeout: 20 * time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = comms[0].Shrink(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "rank 1")
	rest, errs := recovered(comms[1:], func(c *Comm) (*Comm, error) { return c.Shrink(patient(t)) })
	require.NoError(t, errors.Join(errs...))
	sums(t, rest)
	done := make(chan error)
	go func() {
		_, err := rest[0].Shrink(patient(t))
		done <- err
	}()
	require.Eventually(t, func() bool { return rest[1].broken.Load() != nil }, testTime, time.Millisecond, "rank 1 hears of the Shrink")
	require.NoError(t, rest[0].Close())
	require.ErrorIs(t, next(t, done, "the end of Shrink"), ErrClosed)
	closeAll(t, comms...)
	closeAll(t, rest...)
}

// Newcomers join a job that has lost ranks, and one of one rank; all agree on who is new.
func TestGrow(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg := Config{Timeout: 20 * time.Second, Bootstrap: bootstrap.Config{Store: store.NewMemory(), RunID: "job"}}
	comms, err := NewLocal(patient(t), 1, cfg)
	require.NoError(t, err)
	newcomer := comms[0].cfg
	var all [][]*Comm
	for round, n := range []int{1, 2, 1} {
		joined := make(chan *Comm, n)
		for range n {
			go func() {
				c, err := Join(patient(t), newcomer)
				require.NoError(t, err)
				joined <- c
			}()
		}
		for waiting := 0; waiting < n; {
			each(t, comms, func(c *Comm) error {
				got, err := c.Waiting(patient(t))
				if c.Rank() == 0 {
					waiting = got
				}
				return err
			})
		}
		grown, errs := recovered(comms, func(c *Comm) (*Comm, error) { return c.Grow(patient(t), n) })
		require.NoError(t, errors.Join(errs...))
		for range n {
			grown = append(grown, nil)
		}
		for range n {
			c := next(t, joined, "a newcomer")
			require.Nil(t, grown[c.Rank()])
			grown[c.Rank()] = c
		}
		for r, c := range grown {
			require.Equal(t, r, c.Rank())
			require.Equal(t, uint64(round+1), c.Generation())
			for q := range c.Size() {
				want := q
				if q >= len(comms) {
					want = -1
				}
				require.Equal(t, want, c.Former(q))
			}
		}
		sums(t, grown)
		all = append(all, comms)
		comms = grown
	}
	for _, old := range all {
		closeAll(t, old...)
	}
	sums(t, comms)
	closeAll(t, comms...)
}

// A newcomer with other settings spoils nothing: it is told why, and the job goes on as it was.
func TestGrowFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg := Config{Timeout: 20 * time.Second, Bootstrap: bootstrap.Config{Store: store.NewMemory(), RunID: "job"}}
	comms, err := NewLocal(patient(t), 2, cfg)
	require.NoError(t, err)
	other := comms[0].cfg
	other.Reproducible = true
	joined := make(chan error, 1)
	go func() {
		_, err := Join(patient(t), other)
		joined <- err
	}()
	_, errs := recovered(comms, func(c *Comm) (*Comm, error) { return c.Grow(patient(t), 1) })
	for _, err := range errs {
		require.ErrorContains(t, err, "GCCL_REPRODUCIBLE")
	}
	require.ErrorIs(t, next(t, joined, "the newcomer's Join"), ErrMismatch)
	sums(t, comms)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, errs = recovered(comms, func(c *Comm) (*Comm, error) {
		if c.Rank() == 0 {
			return c.Grow(ctx, 1)
		}
		return c.Grow(patient(t), 1)
	})
	for _, err := range errs {
		require.ErrorIs(t, err, ErrUnavailable, "nobody comes")
	}
	closeAll(t, comms...)
}

// A rank that gives a call up, aborts or revokes lives: no other names it as failed, whatever connects them. Over posted
// writes it breaks its connections, if peers may write to its tensors.
func TestWhoGivesUpHasNotFailed(t *testing.T) {
	ways := map[string]func(c *Comm, x tensor.Tensor){
		"cancels": func(c *Comm, x tensor.Tensor) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, c.Recv(ctx, x, 0), context.DeadlineExceeded)
		},
		"aborts": func(c *Comm, x tensor.Tensor) {
			h := c.Start(t.Context(), Call{Kind: Recv, Peer: 0, Dst: x})
			time.AfterFunc(20*time.Millisecond, func() { c.Abort("test") })
			<-h.Done()
			require.Error(t, h.Err())
		},
		"revokes": func(c *Comm, _ tensor.Tensor) { c.Revoke(errors.New("test")) },
	}
	for name, begin := range map[string]func() []*Comm{
		"loopback": func() []*Comm { return localBroken(t, 3, Config{Timeout: testTime, BufferBytes: 64 << 10}) },
		"posted writes": func() []*Comm {
			return localBroken(t, 3, Config{Timeout: testTime, BufferBytes: 64 << 10, noMap: true})
		},
		"with its pulse": func() []*Comm {
			return localBroken(t, 3, Config{Timeout: testTime, BufferBytes: 64 << 10, noMap: true, pulse: true})
		},
		"shm": func() []*Comm { return over(t, 3, "shm") },
		"tcp": func() []*Comm { return over(t, 3, "tcp") },
	} {
		for way, giveUp := range ways {
			comms := begin()
			var mem [3]tensor.Tensor
			each(t, comms, func(c *Comm) (err error) {
				mem[c.rank], err = c.Alloc(patient(t), tensor.Uint8, 1<<20)
				return err
			})
			giveUp(comms[1], mem[1])
			for range 3 {
				for _, c := range comms {
					require.Empty(t, c.Failed(), "%s: one %s; rank %d", name, way, c.rank)
				}
			}
			errs := make([]error, 3)
			together(comms, func(c *Comm) { errs[c.rank] = c.Barrier(patient(t)) })
			for r, err := range errs {
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrPeerLost, "%s: one %s; rank %d", name, way, r)
				require.Empty(t, comms[r].Failed(), "%s: one %s; rank %d", name, way, r)
			}
			closeAll(t, comms...)
		}
	}
}

// over makes the ranks of a job in this process, over a provider for processes.
func over(t *testing.T, n int, provider string) []*Comm {
	t.Helper()
	comms := make([]*Comm, n)
	g, ctx := errgroup.WithContext(patient(t))
	for r, group := range bootstrap.Local(n) {
		g.Go(func() (err error) {
			comms[r], err = New(ctx, Config{Group: group, Provider: provider, Timeout: testTime, BufferBytes: 64 << 10, Bootstrap: bootstrap.Config{Secret: "s"}})
			return err
		})
	}
	require.NoError(t, g.Wait())
	return comms
}

package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/bootstrap/store"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// hooked is a device that tells what its owner does with its endpoints, before it is done; once it has a hook.
type hooked struct {
	rdma.BellDevice
	hook *atomic.Pointer[hook]
}

// hook is told of a step, with the step's context if it has one.
type hook func(ctx context.Context, step string)

type hookedEnd struct {
	rdma.LoadStore
	dev *hooked
}

func (d *hooked) tell(ctx context.Context, step string) {
	if h := d.hook.Load(); h != nil {
		(*h)(ctx, step)
	}
}

func (d *hooked) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	d.tell(context.Background(), "endpoint")
	e, err := d.BellDevice.NewEndpoint(cq, opts)
	if err != nil {
		return nil, err
	}
	return &hookedEnd{e.(rdma.LoadStore), d}, nil
}

func (e *hookedEnd) Connect(ctx context.Context, remote []byte) error {
	e.dev.tell(ctx, "connect")
	return e.LoadStore.Connect(ctx, remote)
}

func (e *hookedEnd) Post(ws []rdma.Write) (int, error) {
	e.dev.tell(context.Background(), "post")
	return e.LoadStore.Post(ws)
}

func (e *hookedEnd) Signal() {
	e.dev.tell(context.Background(), "signal")
	e.LoadStore.Signal()
}

func (e *hookedEnd) Map(ctx context.Context, r rdma.RemoteRegion) ([]byte, error) {
	e.dev.tell(ctx, "map")
	return e.LoadStore.Map(ctx, r)
}

// hookRank0 makes a place for a hook of rank 0's devices.
func hookRank0(cfg *Config) *atomic.Pointer[hook] {
	at := new(atomic.Pointer[hook])
	cfg.wrap = func(rank int, d rdma.Device) rdma.Device {
		if rank != 0 {
			return d
		}
		return &hooked{d.(rdma.BellDevice), at}
	}
	return at
}

// hookedJob makes a job of two goroutines, for a bubble, and a place for a hook of rank 0's devices.
func hookedJob(t *testing.T, cfg Config) ([]*Comm, *atomic.Pointer[hook]) {
	at := hookRank0(&cfg)
	cfg.still, cfg.Spin = true, -1
	cfg.Bootstrap = bootstrap.Config{Store: store.NewMemory(), RunID: "job"}
	comms, err := NewLocal(context.Background(), 2, cfg)
	require.NoError(t, err)
	return comms, at
}

// The operations that do more than one call's worth, and wait outside the engine.
var longOperations = map[string]func(context.Context, *Comm) error{
	"alloc": func(ctx context.Context, c *Comm) error { return second(c.Alloc(ctx, tensor.Uint8, 1<<20)) },
	"split": func(ctx context.Context, c *Comm) error {
		child, err := c.Split(ctx, 0, c.rank)
		if err != nil {
			return err
		}
		return child.Close()
	},
	"grow": func(ctx context.Context, c *Comm) error {
		_, err := c.Grow(ctx, 1) // nobody comes
		return err
	},
}

// A context that ends at any step of an operation that has begun does not take this rank out of step with the others: the operation
// ends alike on both, and breaks the communicator on both or on none.
func TestContextEndsAtAnyStep(t *testing.T) {
	for _, what := range []string{"alloc", "split"} {
		for _, wire := range []bool{false, true} {
			ended, good, well := true, 0, 0
			for step := 1; ended; step++ {
				synctest.Test(t, func(t *testing.T) {
					comms, at := hookedJob(t, Config{Timeout: time.Hour, noMap: wire})
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					var steps atomic.Int64
					var name string
					h := hook(func(_ context.Context, s string) {
						if steps.Add(1) == int64(step) {
							name = s
							cancel()
						}
					})
					at.Store(&h)
					began := time.Now()
					var errs [2]error
					together(comms, func(c *Comm) {
						if c.rank == 0 {
							errs[0] = longOperations[what](ctx, c)
						} else {
							errs[1] = longOperations[what](context.Background(), c)
						}
					})
					at.Store(nil)
					ended = ctx.Err() != nil
					about := fmt.Sprintf("%s, posted writes %v, ended at step %d (%s): %v", what, wire, step, name, errs)
					require.Less(t, time.Since(began), overtime, about)
					require.NotErrorIs(t, errs[0], ErrNotBegun, about)
					require.Equal(t, errs[0] == nil, errs[1] == nil, about)
					var next [2]error
					together(comms, func(c *Comm) { next[c.rank] = c.Barrier(context.Background()) })
					require.Equal(t, next[0] == nil, next[1] == nil, about)
					require.Equal(t, next[0] == nil, comms[0].usable() == nil, about)
					require.NotErrorIs(t, errors.Join(next[:]...), ErrMismatch, about)
					if next[0] == nil {
						good++
					}
					if errs[0] == nil {
						well++
					}
					for _, c := range comms {
						_ = c.Close()
					}
				})
				require.Less(t, step, 1000)
			}
			require.Greater(t, good, 1, "%s: some leave the communicator as it was", what)
			t.Logf("%s, posted writes %v: %d left the communicator as it was, %d went well", what, wire, good, well)
		}
	}
}

// What rank 0 waits for outside the engine never comes. Whatever ends the operation does so on both ranks and soon, and Close, too.
func TestLongOperationsEnd(t *testing.T) {
	const silence = 3 * time.Second
	ways := []struct {
		name  string
		bound time.Duration
		kind  [2]error // nil: any
		whole bool     // the communicator is as it was
		end   func(comms []*Comm, cancel func())
	}{
		{"context ends", time.Second, [2]error{}, true, func(_ []*Comm, cancel func()) { cancel() }},
		{"abort", time.Second, [2]error{ErrGaveUp, ErrGaveUp}, false, func(cs []*Comm, _ func()) { cs[0].Abort("test") }},
		{"abort of the other", time.Second, [2]error{ErrGaveUp, ErrGaveUp}, false, func(cs []*Comm, _ func()) { cs[1].Abort("test") }},
		{"revoke", time.Second, [2]error{ErrRevoked, ErrRevoked}, false, func(cs []*Comm, _ func()) { cs[0].Revoke(errors.New("test")) }},
		{"close", 2 * time.Second, [2]error{ErrClosed, nil}, false, func(cs []*Comm, _ func()) { _ = cs[0].Close() }},
		{"close of the other", 2 * time.Second, [2]error{}, false, func(cs []*Comm, _ func()) { _ = cs[1].Close() }},
		{"the other is stopped", silence + 2*time.Second, [2]error{ErrPeerLost, ErrPeerLost}, false, func(cs []*Comm, _ func()) { cs[1].pulse.stop() }},
	}
	for what, operation := range longOperations {
		for _, w := range ways {
			synctest.Test(t, func(t *testing.T) {
				comms, at := hookedJob(t, Config{Timeout: time.Hour, Heartbeat: silence, pulse: true})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var held atomic.Int64
				h := hook(func(ctx context.Context, step string) {
					if step == "map" || step == "connect" {
						held.Add(1)
						<-ctx.Done()
					}
				})
				at.Store(&h)
				ended := make(chan int, 2)
				var errs [2]error
				for r, c := range comms {
					go func() {
						with := context.Background()
						if r == 0 {
							with = ctx
						}
						errs[r] = operation(with, c)
						ended <- r
					}()
				}
				time.Sleep(time.Minute) // to where it waits, which takes nothing
				require.Empty(t, ended, "%s", what)
				require.Equal(t, what != "grow", held.Load() > 0)
				began := time.Now()
				w.end(comms, cancel)
				<-ended
				<-ended
				about := fmt.Sprintf("%s, %s: %v", what, w.name, errs)
				if e := comms[0].usable(); e != nil && errs[0] != nil {
					require.Equal(t, 1, strings.Count(errs[0].Error(), e.Error()), about)
				}
				require.LessOrEqual(t, time.Since(began), w.bound, about)
				for r, err := range errs {
					require.Error(t, err, about)
					require.LessOrEqual(t, strings.Count(err.Error(), what+": "), 1, about)
					if w.kind[r] != nil {
						require.ErrorIs(t, err, w.kind[r], about)
					}
				}
				at.Store(nil)
				if w.whole {
					sums(t, comms)
				}
				for _, c := range comms {
					began := time.Now()
					require.NoError(t, c.Close(), about)
					require.LessOrEqual(t, time.Since(began), 2*time.Second, about)
				}
			})
		}
	}
}

// An exchange whose context has ended waits for the others no longer than overtime, and then breaks the communicator on all.
func TestOvertimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms, _ := hookedJob(t, Config{Timeout: time.Hour})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := selfGroup{c: comms[0], begun: true}.AllGather(ctx, []byte{1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrNotBegun)
		require.InDelta(t, (time.Second + overtime).Seconds(), time.Since(began).Seconds(), 1)
		require.Error(t, comms[0].usable())
		require.Error(t, comms[1].Barrier(context.Background()))
		closeAll(t, comms...)
	})
}

// stuckStore is a store that does not answer.
type stuckStore struct{ store.Store }

func (stuckStore) Set(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// Newcomers that cannot be let in because rank 0's context has ended are an error of all ranks.
func TestWaitingTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comms, _ := hookedJob(t, Config{Timeout: time.Hour})
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := comms[0].Waiting(ended)
		require.ErrorIs(t, err, ErrNotBegun)
		for _, c := range comms {
			c.cfg.Bootstrap.Store = stuckStore{c.cfg.Bootstrap.Store}
		}
		var errs [2]error
		together(comms, func(c *Comm) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			if c.rank == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			_, errs[c.rank] = c.Waiting(ctx)
		})
		require.ErrorIs(t, errs[0], context.DeadlineExceeded)
		require.ErrorIs(t, errs[1], ErrUnavailable)
		sums(t, comms)
		closeAll(t, comms...)
	})
}

package collective

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rank that waits to be met does meanwhile what a rank in a call must: it takes in what others send, so that they
// can go on, and it learns that one of them has given up.
func TestRanksGoOnWhileLinksAreMade(t *testing.T) {
	const messages = 500 // more than a link holds
	comms := lazyComms(t, 3, Config{})
	x := func(i int) tensor.Tensor { return tensor.Of([]int32{int32(i)}) }
	link01 := func(c *Comm) error {
		if c.rank == 0 {
			return c.Recv(t.Context(), x(0), 1)
		}
		return c.Send(t.Context(), x(0), 0)
	}
	each(t, comms[:2], link01)
	fromTwo := make(chan error, 1)
	go func() { fromTwo <- comms[0].Recv(t.Context(), x(0), 2) }()
	for i := range messages { // they end before rank 2 comes
		require.NoError(t, comms[1].Send(t.Context(), x(i), 0))
	}
	require.NoError(t, comms[2].Send(t.Context(), x(0), 0))
	require.NoError(t, <-fromTwo)
	for i := range messages {
		got := []int32{-1}
		require.NoError(t, comms[0].Recv(t.Context(), tensor.Of(got), 1))
		require.Equal(t, int32(i), got[0])
	}

	comms = lazyComms(t, 3, Config{})
	each(t, comms[:2], link01)
	go func() { fromTwo <- comms[0].Recv(t.Context(), x(0), 2) }()
	for comms[0].queue.turn.Load() == turnFree {
		runtime.Gosched()
	}
	comms[1].Abort("enough")
	select {
	case err := <-fromTwo:
		require.ErrorIs(t, err, ErrGaveUp)
		require.ErrorContains(t, err, "rank 1")
	case <-time.After(30 * time.Second):
		t.Fatal("rank 0 has not heard that rank 1 gave up")
	}
}

// Who is to blame for a meeting that failed.
func TestUnmet(t *testing.T) {
	c := localBroken(t, 4, Config{})[0]
	word := (&link.Notice{Cause: link.CauseGaveUp, From: 2, Culprit: 3, Text: "rank 3 gave up"}).Marshal()
	for name, tc := range map[string]struct {
		err     error
		cause   link.Cause // 0: not the end of a rank
		culprit int
	}{
		"the other tells":                {fmt.Errorf("meeting: %w", &bootstrap.Told{Rank: 2, Word: word}), link.CauseGaveUp, 3},
		"the other tells what none says": {&bootstrap.Told{Rank: 2, Word: word[1:]}, 0, 0},
		"the other tells for a third":    {&bootstrap.Told{Rank: 1, Word: word}, 0, 0},
		"its process is gone":            {&bootstrap.RankError{Rank: 2, Err: bootstrap.ErrPeerLost}, link.CauseLost, 2},
		"a third's process is gone":      {&bootstrap.RankError{Rank: 3, Err: bootstrap.ErrPeerLost}, link.CauseLost, 3},
		"the provider lost it":           {fmt.Errorf("connect: %w", rdma.ErrPeerLost), link.CauseLost, 2},
		"a mistake":                      {&bootstrap.RankError{Rank: 2, Err: bootstrap.ErrMismatch}, 0, 0},
		"something else":                 {errors.New("no memory"), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.unmet(met{rank: 2, err: tc.err})
			var gone *executor.Gone
			if tc.cause == 0 {
				require.NotErrorAs(t, err, &gone)
				require.ErrorAs(t, err, new(*unmet))
				return
			}
			require.ErrorAs(t, err, &gone)
			require.Equal(t, tc.cause, gone.Notice.Cause)
			require.Equal(t, tc.culprit, gone.Notice.Culprit)
			require.Equal(t, 0, gone.Notice.From)
		})
	}
}

// A rank that is stopped when a new link to it maps a window is noticed in the heartbeat's time, and named.
func TestStoppedWhileAWindowIsMapped(t *testing.T) {
	const silence = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Lazy: 1, Timeout: time.Hour, Heartbeat: silence, pulse: true, still: true, Spin: -1, Algo: "ring"}
		at := hookRank0(&cfg)
		comms, err := NewLocal(t.Context(), 5, cfg)
		require.NoError(t, err)
		defer closeAll(t, comms...)
		together(comms, func(c *Comm) { assert.NoError(t, second(c.Alloc(t.Context(), tensor.Uint8, 1000))) })
		require.Nil(t, comms[0].mesh.Peer(2))
		maps := 0
		h := hook(func(ctx context.Context, step string) {
			if step != "map" {
				return
			}
			if maps++; maps > 1 { // the first is of the link itself
				comms[2].pulse.stop()
				<-ctx.Done()
			}
		})
		at.Store(&h)
		began := time.Now()
		errs := make([]error, 5)
		together([]*Comm{comms[0], comms[2]}, func(c *Comm) {
			if c.rank == 0 {
				errs[0] = c.Send(t.Context(), tensor.Of([]byte{1}), 2)
			} else {
				errs[2] = c.Recv(t.Context(), tensor.Of([]byte{0}), 0)
			}
		})
		require.Greater(t, maps, 1)
		require.LessOrEqual(t, time.Since(began), silence+2*time.Second)
		var broke *StepError
		require.ErrorAs(t, errs[0], &broke)
		require.ErrorIs(t, broke, ErrPeerLost)
		require.Equal(t, 2, broke.Peer)
	})
}

// A rank that has closed its communicator does not spoil the calls of others, while a new link between them maps a window.
func TestClosedWhileAWindowIsMapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Lazy: 1, Timeout: time.Hour, Spin: -1, Algo: "ring"}
		at := new(atomic.Pointer[hook])
		cfg.wrap = func(_ int, d rdma.Device) rdma.Device { return &hooked{d.(rdma.BellDevice), at} }
		comms, err := NewLocal(t.Context(), 5, cfg)
		require.NoError(t, err)
		defer closeAll(t, comms...)
		together(comms, func(c *Comm) { assert.NoError(t, second(c.Alloc(t.Context(), tensor.Uint8, 1000))) })
		require.NotNil(t, comms[0].mesh.Peer(1))
		require.Nil(t, comms[0].mesh.Peer(2))
		require.NoError(t, comms[1].Close())
		h := hook(func(_ context.Context, step string) {
			if step == "map" {
				time.Sleep(time.Second)
			}
		})
		at.Store(&h)
		got := []byte{0}
		together([]*Comm{comms[0], comms[2]}, func(c *Comm) {
			if c.rank == 0 {
				assert.NoError(t, c.Send(t.Context(), tensor.Of([]byte{1}), 2))
			} else {
				assert.NoError(t, c.Recv(t.Context(), tensor.Of(got), 0))
			}
		})
		require.Equal(t, []byte{1}, got)
	})
}

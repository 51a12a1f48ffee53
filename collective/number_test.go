package collective

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// failsAs makes a call that waits in vain and returns its error.
func failsAs(t *testing.T, f func(ctx context.Context) error) *StepError {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := f(ctx)
		if cancel(); errors.Is(err, ErrNotBegun) {
			continue // the machine was so busy that it has not begun
		}
		var e *StepError
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, e, context.DeadlineExceeded)
		return e
	}
}

// The error of a call has the number that the call has in the flight record and in the peers' descriptions:
// collectives are counted by communicator, transfers by peer and direction.
func TestErrorsCarryTheCallsNumber(t *testing.T) {
	ctx := t.Context()
	x, large := tensor.Of(make([]byte, 1)), tensor.Of(make([]byte, 16<<20))
	// busy makes some calls on 0 and 1: five collectives, two transfers from 0 to 1, and three back.
	busy := func(t *testing.T, comms []*Comm) {
		each(t, comms[:2], func(c *Comm) error {
			for range 5 {
				if err := c.Barrier(ctx); err != nil {
					return err
				}
			}
			for i := range 5 {
				call := c.Recv
				if (c.rank == 0) == (i < 2) {
					call = c.Send
				}
				if err := call(ctx, tensor.Of(make([]byte, 1)), 1-c.rank); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for name, tc := range map[string]struct {
		call   func(c *Comm, ctx context.Context) error
		number uint64
		words  string
	}{
		"collective": {func(c *Comm, ctx context.Context) error { return c.Barrier(ctx) }, 6, "barrier() #6 rank 0"},
		"recv":       {func(c *Comm, ctx context.Context) error { return c.Recv(ctx, x, 1) }, 4, "recv(uint8[1], from 1) #4 rank 0"},
		"send": {func(c *Comm, ctx context.Context) error {
			return c.Send(ctx, large, 1)
		}, 3, "send(uint8[16777216], to 1) #3 rank 0"},
		"transfer of a group": {func(c *Comm, ctx context.Context) error { // small sends do not wait
			return c.Group(ctx, Call{Kind: Send, Src: x, Peer: 1}, Call{Kind: Recv, Dst: tensor.Of(make([]byte, 1)), Peer: 1}, Call{Kind: Recv, Dst: tensor.Of(make([]byte, 1)), Peer: 1})
		}, 4, "recv(uint8[1], from 1) #4 rank 0"},
		"collective of a group": {func(c *Comm, ctx context.Context) error {
			return c.Group(ctx, Call{Kind: Send, Src: x, Peer: 1}, Call{Kind: Barrier})
		}, 6, "barrier() #6 rank 0"},
	} {
		t.Run(name, func(t *testing.T) {
			comms := localBroken(t, 2, Config{})
			busy(t, comms)
			e := failsAs(t, func(ctx context.Context) error { return tc.call(comms[0], ctx) })
			require.Equal(t, tc.number, e.Seq)
			require.ErrorContains(t, e, tc.words)
			err := comms[1].Barrier(ctx)
			if err == nil { // it had what it needed from 0
				err = comms[1].Barrier(ctx)
			}
			require.ErrorContains(t, err, "gave up "+strings.TrimSuffix(tc.words, " rank 0"))
		})
	}
}

// The same for a call that fails while it makes links, before it has taken its number.
func TestErrorsCarryTheCallsNumberWithoutLinks(t *testing.T) {
	x, y := tensor.Of(make([]byte, 1)), tensor.Of(make([]byte, 1))
	for name, tc := range map[string]struct {
		call  func(c *Comm, ctx context.Context) error
		words string
	}{
		"collective": {func(c *Comm, ctx context.Context) error { return c.Barrier(ctx) }, "barrier() #1 rank 0"},
		"send":       {func(c *Comm, ctx context.Context) error { return c.Send(ctx, x, 2) }, "send(uint8[1], to 2) #1 rank 0"},
		"transfer of a group": {func(c *Comm, ctx context.Context) error {
			return c.Group(ctx, Call{Kind: Send, Src: x, Peer: 1}, Call{Kind: Recv, Dst: y, Peer: 2})
		}, "recv(uint8[1], from 2) #1 rank 0"},
		"collective of a group": {func(c *Comm, ctx context.Context) error {
			return c.Group(ctx, Call{Kind: Send, Src: x, Peer: 2}, Call{Kind: Barrier}, Call{Kind: Barrier})
		}, "barrier() #1 rank 0"},
		"second transfer": {func(c *Comm, ctx context.Context) error {
			return c.Group(ctx, Call{Kind: Recv, Dst: y, Peer: 1}, Call{Kind: Send, Src: x, Peer: 2}, Call{Kind: Send, Src: x, Peer: 2})
		}, "send(uint8[1], to 2) #1 rank 0"},
	} {
		t.Run(name, func(t *testing.T) {
			comms := localBroken(t, 3, Config{Lazy: 1})
			each(t, comms[:2], func(c *Comm) error { // 0 and 1 have links, and 0 has sent 1 two messages
				for range 2 {
					call := c.Recv
					if c.rank == 0 {
						call = c.Send
					}
					if err := call(t.Context(), tensor.Of(make([]byte, 1)), 1-c.rank); err != nil {
						return err
					}
				}
				return nil
			})
			require.ErrorContains(t, failsAs(t, func(ctx context.Context) error { return tc.call(comms[0], ctx) }), tc.words)
		})
	}
	t.Run("behind others", func(t *testing.T) { // of which the last wants links
		c := localBroken(t, 3, Config{Lazy: 1})[0]
		ready := func(call Call) member {
			p, err := c.ready(&call)
			require.NoError(t, err)
			return member{call: &call, plan: p}
		}
		c.seq, c.p2pSeq[1].sent = 1<<32+6, 3
		there, last := ready(Call{Kind: Send, Src: x, Peer: 1}), ready(Call{Kind: Send, Src: tensor.Of(make([]byte, 2)), Peer: 1})
		there.plan.later = nil
		ms := []member{ready(Call{Kind: Barrier}), there, there, last}
		ms[0].plan.later = nil
		e := failsAs(t, func(ctx context.Context) error { return c.reachAll(ctx, ms) })
		require.ErrorContains(t, e, "send(uint8[2], to 1) #6 rank 0")
	})
}

// Numbers of collectives have 64 bits, of which messages carry 32.
func TestNumberOfWraps(t *testing.T) {
	c := localBroken(t, 2, Config{})[0]
	call := &Call{Kind: Barrier}
	p, err := c.ready(call)
	require.NoError(t, err)
	c.seq = 1<<32 - 2
	for want := uint64(1<<32 - 1); want < 1<<32+3; want++ {
		first := c.job
		c.fill(&first, p, call)
		second := c.job
		c.fill(&second, p, call)
		require.Equal(t, want, c.numberOf(&first, call))
		require.Equal(t, want+1, c.numberOf(&second, call))
		c.seq--
	}
}

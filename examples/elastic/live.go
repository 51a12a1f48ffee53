package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// live is the life of a rank: it trains with the others until the steps are made and all ranks are there.
// What fails on the way is another rank's end, so the ranks that are left shrink and go on.
func live(ctx context.Context, o options, newcomer bool) error {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	enter := collective.New
	m := newModel()
	if newcomer {
		enter = collective.Join
		m.step = -1 // it knows nothing
	}
	comm, err := enter(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { comm.Close() }()
	err = m.synchronise(ctx, comm)
	for {
		if err == nil {
			comm, err = train(ctx, comm, m, o)
		}
		if err == nil {
			return comm.Close()
		}
		if ctx.Err() != nil || !errors.Is(err, collective.ErrPeerLost) && !errors.Is(err, collective.ErrRevoked) {
			return err
		}
		smaller, shrinkErr := comm.Shrink(ctx)
		if shrinkErr != nil {
			return errors.Join(err, shrinkErr)
		}
		comm = replace(comm, smaller)
		say(comm, "goes on without %v", err)
		err = m.synchronise(ctx, comm)
	}
}

// replace closes the communicator that another was made of.
func replace(old, next *collective.Comm) *collective.Comm {
	_ = old.Close() // it is broken, or idle; the next one says if it matters
	return next
}

func say(c *collective.Comm, format string, args ...any) {
	fmt.Printf("rank %d of %d, generation %d: %s\n", c.Rank(), c.Size(), c.Generation(), fmt.Sprintf(format, args...))
}

// train makes steps, and takes in newcomers between them. It returns the communicator that it has come to.
func train(ctx context.Context, comm *collective.Comm, m *model, o options) (*collective.Comm, error) {
	for m.step < int64(o.steps) || comm.Size() < o.ranks {
		waiting, err := comm.Waiting(ctx)
		if err != nil {
			return comm, err
		}
		if waiting > 0 {
			larger, err := comm.Grow(ctx, waiting)
			if err != nil {
				return comm, err
			}
			comm = replace(comm, larger)
			if err := m.synchronise(ctx, comm); err != nil {
				return comm, err
			}
			say(comm, "%d more", waiting)
			continue // as the newcomers begin
		}
		g := m.gradient(comm.Rank(), comm.Size())
		if err := comm.AllReduce(ctx, tensor.Of(g), tensor.Of(g), tensor.Sum); err != nil {
			return comm, err
		}
		m.apply(g)
		if comm.Rank() == 0 && m.step%5 == 0 {
			say(comm, "step %d loss %.6f", m.step, m.loss())
		}
		select {
		case <-time.After(o.pace):
		case <-ctx.Done():
			return comm, ctx.Err()
		}
	}
	return comm, check(ctx, comm, m)
}

// check compares the ranks' weights with each other, and with those of a single process.
func check(ctx context.Context, comm *collective.Comm, m *model) error {
	most := append([]float64(nil), m.weights...)
	if err := comm.AllReduce(ctx, tensor.Of(most), tensor.Of(most), tensor.Max); err != nil {
		return err
	}
	alone := newModel()
	for alone.step < m.step {
		alone.apply(alone.gradient(0, 1))
	}
	for i, w := range m.weights {
		if w != most[i] {
			return fmt.Errorf("weight %d is %v here, %v on another rank", i, w, most[i])
		}
		if d := w - alone.weights[i]; d > 1e-9 || d < -1e-9 {
			return fmt.Errorf("weight %d is %v, and %v in a single process", i, w, alone.weights[i])
		}
	}
	if comm.Rank() == 0 {
		say(comm, "%d steps, right to 1e-9 on all ranks", m.step)
	}
	return nil
}

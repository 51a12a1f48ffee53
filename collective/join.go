package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"go.uber.org/zap"
)

// Join makes this process a rank of a job that runs: it waits until the job's ranks take it in
// ([Comm.Waiting], [Comm.Grow]), and returns the same communicator as Grow does there. cfg must have the
// settings of the job's ranks, its Bootstrap their RunID, Secret, and Store or Rendezvous; Rank, Size and
// Root are not used.
//
// [Comm.Former] tells which ranks are new, as this one is; rank 0 is not. Join waits, through failures and
// successors of the job's rank 0, until ctx ends.
func Join(ctx context.Context, cfg Config) (*Comm, error) {
	cfg.defaults()
	c := &Comm{cfg: cfg, log: cfg.Logger, size: 2} // for its port
	if err := c.needPort(ctx); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	defer c.standby.port.release()
	pause := firstPause
	for {
		child, err := c.visit(ctx)
		switch {
		case err == nil:
			return child, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("join: %w (%w)", context.Cause(ctx), err)
		case errors.Is(err, bootstrap.ErrConfig), errors.Is(err, ErrMismatch), errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable):
			return nil, fmt.Errorf("join: %w", err)
		}
		c.log.Info("not taken in yet; trying again", zap.Error(err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

// How long a newcomer waits before it looks for the job again, and how long it tries to reach a rank 0 that
// may be gone.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	reachTime    = 5 * time.Second
)

// visit finds rank 0 and waits there. An error other than those that Join returns is worth another try.
func (c *Comm) visit(ctx context.Context) (*Comm, error) {
	addrs, secret, err := bootstrap.Find(ctx, c.cfg.Bootstrap)
	if err != nil {
		return nil, err
	}
	reach, cancel := context.WithTimeout(ctx, reachTime)
	contact, err := c.standby.port.Call(reach, joinCircle(c.cfg.Bootstrap.RunID, secret), bootstrap.ForJoining, 0, addrs)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot be reached: %v", err) // another may come
	}
	life, end := context.WithCancelCause(ctx)
	heard := make(chan toGuest, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			b, err := contact.Receive()
			var m toGuest
			if err == nil {
				err = json.Unmarshal(b, &m)
			}
			if err != nil {
				end(fmt.Errorf("rank 0 is gone: %w", err))
				return
			}
			select {
			case heard <- m:
			case <-life.Done():
				return
			}
		}
	}()
	defer func() { end(nil); contact.Close(); <-done }()
	for {
		select {
		case m := <-heard:
			if m.Invite == nil {
				continue
			}
			child, err := c.follow(life, contact, heard, m.Invite)
			if child != nil || err != nil {
				return child, err
			}
		case <-life.Done():
			return nil, context.Cause(life)
		}
	}
}

// follow takes an invitation. It returns nil and no error if this process is to wait for another one.
func (c *Comm) follow(ctx context.Context, contact *bootstrap.Contact, heard chan toGuest, in *invitation) (*Comm, error) {
	if in.Former < 1 || in.Rank < in.Former || in.Rank >= in.Size || in.Size > maxRanks {
		return nil, fmt.Errorf("%w: invitation to be rank %d of %d, of whom %d are known", ErrInternal, in.Rank, in.Size, in.Former)
	}
	yes, err := json.Marshal(fromGuest{Coming: true})
	if err != nil {
		return nil, err
	}
	if err := contact.Send(yes, sayTime); err != nil {
		return nil, err
	}
	type made struct {
		comm *Comm
		err  error
	}
	making, stop := context.WithCancel(ctx)
	defer stop()
	ready := make(chan made, 1)
	go func() {
		child, err := c.enterAs(making, in)
		ready <- made{child, err}
	}()
	var m made
	have, verdict := false, toGuest{}
	for !have || m.err == nil && !verdict.Welcome && !verdict.Again {
		select {
		case m = <-ready:
			have = true
		case verdict = <-heard:
			if !verdict.Welcome {
				stop()
			}
		case <-ctx.Done():
			stop()
			if !have {
				m, have = <-ready, true
			}
			select {
			case verdict = <-heard: // the last word of a rank 0 that is gone
			default:
			}
			if verdict.Welcome && m.err == nil {
				continue
			}
			verdict = toGuest{Again: true}
			if m.err == nil {
				m.err = errors.Join(context.Cause(ctx), m.comm.Close())
			}
		}
	}
	switch {
	case m.err == nil && verdict.Welcome:
		return m.comm, nil
	case m.err == nil:
		return nil, m.comm.Close()
	case verdict.Again && ctx.Err() == nil:
		return nil, nil
	}
	return nil, m.err
}

// maxRanks bounds what an invitation may say.
const maxRanks = 1 << 20

// enterAs makes the communicator that this process is invited to.
func (c *Comm) enterAs(ctx context.Context, in *invitation) (*Comm, error) {
	g, err := c.form(ctx, in.Name, in.Rank, in.Size, in.Root)
	if err != nil {
		return nil, err
	}
	cfg := c.cfg
	cfg.Group = g
	h := &heir{port: c.standby.port, generation: in.Generation, former: make([]int, in.Size)}
	for r := range h.former {
		if h.former[r] = r; r >= in.Former {
			h.former[r] = -1
		}
	}
	cfg.heir = h
	return New(ctx, cfg)
}

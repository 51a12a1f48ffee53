package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/link"
	"go.uber.org/zap"
)

// Join makes this process a rank of a job that runs: it waits until the job's ranks take it in
// ([Comm.Waiting], [Comm.Grow]), and returns the same communicator as Grow does there. cfg must have the
// settings of the job's ranks, its Bootstrap their RunID, Secret, and Store or Rendezvous; Rank, Size and
// Root are not used.
//
// [Comm.Former] tells which ranks are new, as this one is; rank 0 is not. Join waits, through failures and
// successors of the job's rank 0, and through Grows that fail for whatever reason that is not this process's own,
// until ctx ends.
//
// It returns earlier if this process cannot be a rank of that job, with what is wrong: its settings or its
// build differ from rank 0's (ErrMismatch), nothing connects it with a rank before it (ErrUnavailable), it cannot
// do what its settings want (ErrInvalid, ErrUnavailable), or these do not say where the job is (bootstrap.ErrConfig).
// Grow fails then for the same reason, once, and newcomers that fit wait on, whoever of them finds out first.
func Join(ctx context.Context, cfg Config) (*Comm, error) {
	cfg.defaults()
	c := &Comm{cfg: cfg, log: cfg.Logger, catalog: catalog(), size: 2} // for its port
	if err := cmp.Or(cfg.refused, cfg.check()); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if err := c.loadTuning(); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if err := c.needPort(ctx); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	defer c.standby.port.release()
	pause := firstPause
	for {
		child, err := c.visit(ctx)
		if err == nil {
			return child, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("join: %w (%w)", context.Cause(ctx), err)
		}
		if last := (*lasting)(nil); errors.As(err, &last) {
			return nil, fmt.Errorf("join: %w", last)
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

// lasting is an error that trying again would not change.
type lasting struct{ error }

// Unwrap returns the error.
func (e *lasting) Unwrap() error { return e.error }

// visit finds rank 0 and waits there. An error other than a lasting one is worth another try.
func (c *Comm) visit(ctx context.Context) (*Comm, error) {
	addrs, secret, err := bootstrap.Find(ctx, c.cfg.Bootstrap)
	if errors.Is(err, bootstrap.ErrConfig) {
		return nil, &lasting{err}
	}
	if err != nil {
		return nil, err
	}
	reach, cancel := context.WithTimeout(ctx, reachTime)
	contact, err := c.standby.port.Call(reach, joinCircle(c.cfg.Bootstrap.RunID, secret), bootstrap.ForJoining, 0, addrs)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot be reached: %w", err) // another may come
	}
	v := newVisit(ctx, contact, c.silence())
	defer v.leave()
	for {
		select {
		case m := <-v.heard:
			if m.Invite == nil {
				continue
			}
			child, err := c.follow(ctx, v, m.Invite)
			if child != nil || err != nil {
				return child, err
			}
		case <-v.life.Done():
			return nil, fmt.Errorf("waited at rank 0 (%s) for an invitation: %w", strings.Join(addrs, ", "), context.Cause(v.life))
		}
	}
}

// silence is how long rank 0 and a newcomer may hear nothing of each other; 0: for ever.
func (c *Comm) silence() time.Duration {
	if c.cfg.network != nil && !c.cfg.pulse {
		return 0 // goroutines of one process stop together
	}
	return max(0, c.heartbeat())
}

// made is how the making of a communicator has ended.
type made struct {
	comm *Comm
	err  error
}

// follow takes an invitation, and waits until the making of the communicator has ended here and rank 0 has
// said how it ended for all, in whatever order. It returns nil and no error if this process is to wait for
// another invitation.
func (c *Comm) follow(ctx context.Context, v *visit, in *invitation) (*Comm, error) {
	if in.Former < 1 || in.Rank < in.Former || in.Rank >= in.Size || in.Size > maxRanks {
		return nil, fmt.Errorf("%w: invitation to be rank %d of %d, of whom %d are known", ErrInternal, in.Rank, in.Size, in.Former)
	}
	if err := v.say(fromGuest{Coming: true, Name: in.Name}); err != nil {
		return nil, err
	}
	making, stop := context.WithCancel(ctx) // which rank 0's end does not end: it may have said that all is well
	defer stop()
	ready := make(chan made, 1)
	go func() {
		child, err := c.enterAs(making, in)
		ready <- made{child, err}
	}()
	m, verdict := c.both(v, in, ready, stop)
	if m.err == nil && verdict.Welcome {
		return m.comm, nil
	}
	if m.err == nil {
		m.err = m.comm.Close()
	}
	if own := c.final(m.err, in); own != nil {
		return nil, &lasting{own}
	}
	switch {
	case verdict.Refused != nil:
		return nil, &lasting{fmt.Errorf("the job refuses this process: %w", verdict.Refused)}
	case verdict.Again:
		c.log.Info("the job could not take this process in; waiting", zap.Error(m.err))
		return nil, nil
	}
	return nil, fmt.Errorf("waited for what rank 0 says of rank %d of %d: %w", in.Rank, in.Size, cmp.Or(context.Cause(v.life), m.err))
}

// both waits for the end of the making and for rank 0's verdict. One that does not come because rank 0 is gone
// is empty.
func (c *Comm) both(v *visit, in *invitation, ready chan made, stop func()) (made, toGuest) {
	var m made
	verdict := toGuest{}
	for have, heard, life := false, v.heard, v.life.Done(); !have || heard != nil; {
		select {
		case m = <-ready:
			if have = true; m.err != nil && !errors.As(m.err, new(*misfit)) { // of that, all know
				_ = v.say(fromGuest{Name: in.Name, Failed: told(m.err.Error())}) // else the end of the contact says it
			}
			continue
		case verdict = <-heard:
		case <-life:
			select {
			case verdict = <-heard: // the last word of a rank 0 that is gone
			default:
			}
		}
		heard, life = nil, nil // what comes after the verdict is for later
		if !verdict.Welcome {
			stop()
		}
	}
	return m, verdict
}

// final returns what in a failure is this process's own fault, so that it would fail again; nil: nothing is.
func (c *Comm) final(err error, in *invitation) error {
	var to *link.ConnectError
	switch {
	case errors.As(err, new(*misfit)):
		if f := refusals(err, in.Former)[in.Rank]; f != nil {
			return f
		}
	case errors.As(err, new(*unable)), errors.Is(err, bootstrap.ErrConfig):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // it was ended
	case errors.As(err, &to) && to.Rank >= in.Former: // it may be the other newcomer's fault
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable):
		return err
	}
	return nil
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

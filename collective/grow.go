package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gccl/gccl/internal/agree"
	"github.com/gccl/gccl/internal/recovery"
	"github.com/gccl/gccl/tensor"
)

// Waiting returns how many processes wait to join ([Join]), the same number on all ranks, which must all
// call it. The first call of a communicator's rank 0 lets them come: it puts its address into the job's
// store (Config.Bootstrap's Store or Rendezvous, under its RunID). One communicator of a job at
// a time takes newcomers in.
func (c *Comm) Waiting(ctx context.Context) (int, error) {
	n := []int64{-1}
	err := c.operate(ctx, "waiting", func() error {
		err := c.usable()
		if err != nil {
			return err
		}
		call := &Call{Kind: Broadcast, Dst: tensor.Of(n), Src: tensor.Of(n)}
		if c.rank == 0 {
			if err = c.attended(ctx, "waiting", c.openHall); err == nil {
				n[0] = int64(c.standby.hall.count())
			}
		}
		return both(err, selfGroup{c: c, begun: err != nil}.run(ctx, call)) // the others hear of a failure
	})
	switch {
	case err != nil:
		return 0, err
	case n[0] < 0:
		return 0, fmt.Errorf("%w: rank 0 cannot take newcomers in", ErrUnavailable)
	}
	return int(n[0]), nil
}

// Grow makes a communicator of these ranks and n processes that wait to join. All ranks must call it with
// the same n, and rank 0 waits for so many until its ctx ends, or half of Config.Timeout has passed. Half of the time
// that is left then is for making the communicator, so that there is some to agree that it could not be made.
//
// The ranks keep their numbers and the newcomers come after them, so rank 0 always has what the job has
// computed. For both sides [Comm.Former] is −1 exactly for newcomers, and [Comm.Generation] is the same:
// they agree on who must send what to whom. A broadcast from rank 0 is enough.
//
// Grow returns alike on all ranks of this communicator, whoever fails meanwhile: an error says on each of them what
// went wrong first, on the lowest rank that knows, and has that kind. On an error this communicator is as before,
// unless one of its own ranks has failed. A newcomer that cannot be a rank of this job, because its settings differ
// (ErrMismatch) or nothing reaches it (ErrUnavailable), has been sent away then and makes no second Grow fail; the others
// wait for the next. After success this communicator can only be closed, which all should do once the new one is there.
func (c *Comm) Grow(ctx context.Context, n int) (child *Comm, err error) {
	if n < 1 {
		return nil, invalid("grow by %d ranks", n)
	}
	err = c.operate(ctx, "grow", func() error {
		if err := c.usable(); err != nil {
			return err
		}
		s, err := c.recoverable("grow")
		if err != nil {
			return err
		}
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		if child, err = c.grow(ctx, s, n); err != nil {
			return fmt.Errorf("grow: %w", err)
		}
		c.pass(child)
		return nil
	})
	return child, err
}

// growth is what rank 0 tells the others: whether n newcomers come.
type growth struct {
	N     int    `json:"n"`
	Error string `json:"error,omitempty"`
}

func (c *Comm) grow(ctx context.Context, s *recovery.Session, n int) (*Comm, error) {
	if s != nil {
		defer s.Watch()()
	}
	c.standby.growths++ // on all ranks alike
	name := fmt.Sprintf("grow%d", c.standby.growths)
	mine := growth{N: n}
	var guests []*guest
	if c.rank == 0 {
		err := c.attended(ctx, "grow", func(ctx context.Context) (err error) {
			guests, err = c.invite(ctx, n, name)
			return err
		})
		if err != nil {
			mine.Error = strings.TrimPrefix(err.Error(), ErrUnavailable.Error()+": ") // which announce says
		}
	}
	again := toGuest{Again: true}
	verdicts := slices.Repeat([]toGuest{again}, len(guests))
	defer func() { tellAll(guests, verdicts) }()
	if err := c.announce(ctx, mine); err != nil {
		return nil, err
	}
	var child *Comm
	made := c.attended(ctx, "grow", func(ctx context.Context) (err error) {
		child, err = c.withGuests(ctx, s, name, n, guests)
		return err
	})
	v := agree.Outcome{Flags: 1, Failed: agree.NewSet(c.size)}
	if made != nil {
		v.Flags = 0
	}
	var err error
	if s != nil {
		v, _, err = c.agreed(s.Agree(ctx, opGrow, v.Flags))(opGrow)
	}
	if err == nil && v.Flags&1 == 1 && v.Failed.Len() == 0 {
		for i := range verdicts {
			verdicts[i] = toGuest{Welcome: true}
		}
		return child, nil
	}
	switch {
	case err == nil && v.Failed.Len() > 0:
		err = fmt.Errorf("%w: %s failed meanwhile", ErrPeerLost, c.describe(v.Failed.Ranks()[0]))
	case err == nil: // as all ranks know
		var refused map[int]*fault
		refused, err = c.confer(ctx, made)
		for i := range verdicts {
			if f := refused[c.size+i]; f != nil {
				verdicts[i] = toGuest{Refused: f}
			}
		}
	case made != nil:
		err = noting(err, made)
	}
	if child != nil {
		err = errors.Join(err, child.Close())
	}
	return nil, err
}

// finding is what a rank tells the others of the making of a communicator that has failed somewhere.
type finding struct {
	Fault *fault `json:"fault,omitempty"` // why, if this rank has found out itself
	// Refused are the newcomers who are to blame, by rank in the communicator that was not made.
	Refused map[int]*fault `json:"refused,omitempty"`
}

// confer finds out among all ranks why a communicator could not be made on some of them: the lowest rank's reason,
// best one that says who is to blame.
func (c *Comm) confer(ctx context.Context, made error) (map[int]*fault, error) {
	var mine finding
	if made != nil && (!errors.Is(made, recovery.ErrElsewhere) || errors.As(made, new(*misfit))) {
		mine = finding{faultOf(made), refusals(made, c.size)}
	}
	all, err := gathered(ctx, c, mine)
	if err != nil {
		if made != nil {
			err = noting(err, made)
		}
		return mine.Refused, err
	}
	for _, blaming := range []bool{true, false} {
		for r, f := range all {
			switch {
			case f.Fault == nil || blaming && len(f.Refused) == 0:
			case r == c.rank:
				return f.Refused, made
			case blaming:
				return f.Refused, f.Fault
			default:
				return nil, fmt.Errorf("%s: %w", c.describe(r), f.Fault)
			}
		}
	}
	return nil, fmt.Errorf("%w: the new communicator could not be made", ErrGaveUp)
}

// announce tells all ranks what rank 0 found.
func (c *Comm) announce(ctx context.Context, mine growth) error {
	all, err := gathered(ctx, c, mine)
	if err != nil {
		return err
	}
	for r, g := range all {
		switch {
		case g.N != mine.N:
			return fmt.Errorf("%w: grow by %d here, by %d on %s", ErrMismatch, mine.N, g.N, c.describe(r))
		case g.Error != "":
			return fmt.Errorf("%w: %s: %s", ErrUnavailable, c.describe(r), g.Error)
		}
	}
	return nil
}

// gathered gives every rank what each has found, even if that is that ctx has ended.
func gathered[T any](ctx context.Context, c *Comm, mine T) ([]T, error) {
	blob, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := selfGroup{c: c, begun: true}.AllGather(ctx, blob)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(blobs))
	for r, b := range blobs {
		if err := json.Unmarshal(b, &all[r]); err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrInternal, c.describe(r), err)
		}
	}
	return all, nil
}

// withGuests makes a communicator of all ranks and n newcomers, and gives up as soon as one is lost or says that
// it has failed, or when half of the time is over.
func (c *Comm) withGuests(ctx context.Context, s *recovery.Session, name string, n int, guests []*guest) (*Comm, error) {
	members := c.without(agree.NewSet(c.size))
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(end)/2,
			fmt.Errorf("the new communicator was not there in time: %w", context.DeadlineExceeded))
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, g := range guests {
		part := g.part // which is another one in the next Grow
		stop := context.AfterFunc(part, func() { cancel(context.Cause(part)) })
		defer stop()
	}
	if s != nil {
		return c.guarded(ctx, s, name, members, n)
	}
	child, err := c.remake(ctx, name, members, n)
	return child, because(ctx, err)
}

// because adds to an error why its context has ended.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

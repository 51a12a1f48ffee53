package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	h := c.queue.put(func() error {
		if err := c.usable(); err != nil {
			return err
		}
		var err error
		if c.rank == 0 {
			if err = c.openHall(ctx); err == nil {
				n[0] = int64(c.standby.hall.count())
			}
		}
		return errors.Join(err, c.run(ctx, &Call{Kind: Broadcast, Dst: tensor.Of(n), Src: tensor.Of(n)}))
	})
	<-h.done
	if h.err == nil && n[0] < 0 {
		return 0, fmt.Errorf("%w: rank 0 cannot take newcomers in", ErrUnavailable)
	}
	return int(max(n[0], 0)), h.err
}

// Grow makes a communicator of these ranks and n processes that wait to join. All ranks must call it with
// the same n, and rank 0 waits for so many until its ctx ends, or half of Config.Timeout has passed.
//
// The ranks keep their numbers and the newcomers come after them, so rank 0 always has what the job has
// computed. For both sides [Comm.Former] is −1 exactly for newcomers, and [Comm.Generation] is the same:
// they agree on who must send what to whom. A broadcast from rank 0 is enough.
//
// Grow returns alike on all ranks of this communicator, whoever fails meanwhile. On an error this
// communicator is as before, unless one of its own ranks has failed. After success it can only be
// closed, which all should do once the new one is there.
func (c *Comm) Grow(ctx context.Context, n int) (*Comm, error) {
	if n < 1 {
		return nil, invalid("grow by %d ranks", n)
	}
	var child *Comm
	h := c.queue.put(func() error {
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
	<-h.done
	return child, h.err
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
		var err error
		if guests, err = c.invite(ctx, n, name); err != nil {
			mine.Error = err.Error()
		}
	}
	welcome := false
	defer func() {
		for _, g := range guests {
			g.tell(welcome)
		}
	}()
	if err := c.announce(ctx, mine); err != nil {
		return nil, err
	}
	child, made := c.withGuests(ctx, s, name, n, guests)
	v := agree.Outcome{Flags: 1, Failed: agree.NewSet(c.size)}
	if made != nil {
		v.Flags = 0
	}
	var err error
	if s != nil {
		v, _, err = c.agreed(s.Agree(ctx, opGrow, v.Flags))(opGrow)
	}
	if err == nil && v.Flags&1 == 1 && v.Failed.Len() == 0 {
		welcome = true
		return child, nil
	}
	switch {
	case err != nil:
	case v.Failed.Len() > 0:
		err = fmt.Errorf("%w: %s failed meanwhile", ErrPeerLost, c.describe(v.Failed.Ranks()[0]))
	case made != nil:
		err = made
	default:
		err = fmt.Errorf("%w: the new communicator could not be made on another rank", ErrGaveUp)
	}
	if child != nil {
		err = errors.Join(err, child.Close())
	}
	return nil, err
}

// announce tells all ranks what rank 0 found.
func (c *Comm) announce(ctx context.Context, mine growth) error {
	if ctx.Err() != nil { // rank 0 has waited in vain, which the others must hear
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), sayTime)
		defer cancel()
	}
	blob, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := selfGroup{c}.AllGather(ctx, blob)
	if err != nil {
		return err
	}
	for r, b := range all {
		var g growth
		switch err := json.Unmarshal(b, &g); {
		case err != nil:
			return fmt.Errorf("%w: %s: %v", ErrInternal, c.describe(r), err)
		case g.N != mine.N:
			return fmt.Errorf("%w: grow by %d here, by %d on %s", ErrMismatch, mine.N, g.N, c.describe(r))
		case g.Error != "":
			return fmt.Errorf("%w: %s: %s", ErrUnavailable, c.describe(r), g.Error)
		}
	}
	return nil
}

// withGuests makes a communicator of all ranks and n newcomers, and gives up as soon as one is lost.
func (c *Comm) withGuests(ctx context.Context, s *recovery.Session, name string, n int, guests []*guest) (*Comm, error) {
	members := c.without(agree.NewSet(c.size))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, g := range guests {
		stop := context.AfterFunc(g.life, func() { cancel(fmt.Errorf("newcomer %s is gone", g.who())) })
		defer stop()
	}
	if s == nil {
		return c.remake(ctx, name, members, n)
	}
	return c.guarded(ctx, s, name, members, n)
}

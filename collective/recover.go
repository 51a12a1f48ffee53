package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/agree"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/internal/recovery"
)

// Failure is a rank that has failed, as far as this one knows.
type Failure struct {
	Rank  int
	Host  string
	PID   int
	Cause error
}

// String says who failed, and why.
func (f Failure) String() string {
	return fmt.Sprintf("rank %d (pid %d on %s): %v", f.Rank, f.PID, f.Host, f.Cause)
}

// Failed returns the ranks that this one knows to have failed, ascending: their process or host is gone
// or silent, or they have closed the communicator; not those that only gave a call up. Ranks may know of different ones; those that Agree or
// Shrink have found are known to all that took part. Any goroutine may call it, also after Close.
func (c *Comm) Failed() []Failure {
	causes := map[int]error{}
	c.told() // what others have left to say, if this rank has been in no call since
	c.life.RLock()
	if !c.released {
		for r := range c.size {
			if p := c.mesh.Peer(r); p != nil {
				if n := p.Lost(); n != nil {
					causes[r] = n
				}
			}
		}
	}
	c.life.RUnlock()
	if s := c.standby.session; s != nil {
		for r, err := range s.Failures() {
			if causes[r] == nil {
				causes[r] = err
			}
		}
	}
	if e := c.broken.Load(); e != nil && e.Kind == ErrPeerLost && e.Peer >= 0 && e.Peer != c.rank && causes[e.Peer] == nil {
		causes[e.Peer] = e.Err
	}
	var out []Failure
	for r, err := range causes {
		out = append(out, Failure{Rank: r, Host: c.peers[r].Host, PID: c.peers[r].Pid, Cause: err})
	}
	slices.SortFunc(out, func(a, b Failure) int { return a.Rank - b.Rank })
	return out
}

// Revoke ends all calls of the communicator, on every rank that can be reached, with ErrRevoked: for a rank
// that has learned of a failure and knows that others wait for each other. Only Agree and Shrink
// work after it. Any goroutine may call it; it does not block. A communicator that is broken stays
// so for its first cause.
func (c *Comm) Revoke(cause error) {
	why := "no reason given"
	if cause != nil {
		why = cause.Error()
	}
	c.giveUp(link.CauseRevoked, "revoke", "revoked the communicator", why)
}

// Agree returns the bitwise AND of the flags of all ranks that have not failed: the same on each of them,
// whoever fails meanwhile. It works on a broken or revoked communicator, too, and does not break one.
// All ranks must call it, in the same order with respect to Shrink and Grow; Agree waits for ranks that are
// alive until they do. A rank whose ctx ends, or Config.Timeout passes, leaves, as if it had failed,
// and can only close the communicator; not if its turn had not come (ErrNotBegun).
//
// Errors: ErrExcluded if the others took this rank for lost, ErrPeerLost if so many are silent (stopped,
// or cut off) that the rest is no majority, ErrMismatch if some are in Shrink or Grow instead.
func (c *Comm) Agree(ctx context.Context, flags uint64) (uint64, error) {
	err := c.operate(ctx, "agree", func() error {
		s, err := c.recoverable("agree")
		if s == nil || err != nil {
			return err
		}
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		c.prejudge(s)
		v, _, err := c.agreed(s.Agree(ctx, opAgree, flags))(opAgree)
		flags = v.Flags
		return err
	})
	if err != nil {
		return 0, err
	}
	return flags, nil
}

// Shrink makes a communicator of the ranks that are left, in their order. All that are left must call it;
// it waits for ranks that are alive until they do, and revokes the communicator, so that they notice. It
// returns on all of them alike, whoever fails meanwhile, this communicator's rank 0 included: with
// communicators of the same ranks, or with an error. What fails after the ranks have agreed is a failure of
// the new communicator.
//
// A rank that answers is not left out, even if others could not reach it in a call: so Shrink may
// return as many ranks, with new connections. [Comm.Former] tells which rank was which.
//
// This communicator can only be closed afterwards. Close it when the new one is there: a rank that closes
// it without has left. ctx and errors are as for [Comm.Agree], but that the new communicator's failure is told as by [New]; one more error is that the ranks agree but the new
// communicator cannot be made, for instance because a host is out of memory.
func (c *Comm) Shrink(ctx context.Context) (child *Comm, err error) {
	if c.queue.inOp() {
		return nil, errInOp
	}
	c.Revoke(errors.New("shrink"))
	err = c.operate(ctx, "shrink", func() error {
		s, err := c.recoverable("shrink")
		if err != nil {
			return err
		}
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		if s == nil {
			child, err = c.remake(ctx, "alone", []int{0}, 0)
		} else {
			c.prejudge(s)
			child, err = c.shrink(ctx, s)
		}
		if err == nil {
			c.pass(child)
		}
		return err
	})
	return child, err
}

// recoverable returns the session in which ranks agree, nil for a rank that is alone, or why there is
// none.
func (c *Comm) recoverable(what string) (*recovery.Session, error) {
	switch {
	case c.closed.Load():
		return nil, ErrClosed
	case c.standby.given.Load():
		return nil, invalid("%s of a communicator that another has been made of", what)
	case c.size == 1:
		return nil, nil
	case c.standby.session == nil:
		return nil, fmt.Errorf("%w: %s: this rank could not open a port when the communicator was made", ErrUnavailable, what)
	}
	return c.standby.session, nil
}

// bounded bounds a context as calls are.
func (c *Comm) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.cfg.Timeout > 0 {
		return context.WithTimeout(ctx, c.cfg.Timeout)
	}
	return context.WithCancel(ctx)
}

// prejudge tells a session what calls have found out: who was silent, and whether this rank is
// taken for lost itself.
func (c *Comm) prejudge(s *recovery.Session) {
	n := c.mesh.Failed() // which first hears what others have left to say
	for r := range c.size {
		if p := c.mesh.Peer(r); p != nil {
			if n := p.Lost(); n != nil && n.Cause == link.CauseLost {
				s.Hint(r)
			}
		}
	}
	if c.standby.lastBeat.Load() != nil {
		c.selfCheck()
	}
	lost := n != nil && n.Cause == link.CauseLost
	if lost && n.Culprit != c.rank {
		s.Hint(n.Culprit)
	}
	if c.standby.stopped.Load() || lost && n.Culprit == c.rank {
		s.Doubt()
	}
}

// agreed turns the end of an agreement into this package's terms.
func (c *Comm) agreed(v agree.Outcome, round uint64, err error) func(op uint8) (agree.Outcome, uint64, error) {
	return func(op uint8) (agree.Outcome, uint64, error) {
		switch {
		case errors.Is(err, recovery.ErrOut):
			err = fmt.Errorf("%w: %w", ErrExcluded, err)
		case errors.Is(err, recovery.ErrNoQuorum):
			err = fmt.Errorf("%w: %w", ErrPeerLost, err)
		case errors.Is(err, recovery.ErrLeft):
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		case err == nil && v.Op != op:
			err = fmt.Errorf("%w: some ranks call Agree, others Shrink or Grow", ErrMismatch)
		}
		return v, round, err
	}
}

// shrink agrees on who is left, makes a communicator of them, and agrees that it is there; again, if
// somebody has failed meanwhile. Each round decides how the one before has ended and begins the next.
func (c *Comm) shrink(ctx context.Context, s *recovery.Session) (*Comm, error) {
	defer s.Watch()()
	v, round, err := c.agreed(s.Agree(ctx, opShrink, 1))(opShrink)
	for err == nil {
		members := c.without(v.Failed)
		child, made := c.guarded(ctx, s, fmt.Sprint(round), members, 0)
		flags := uint64(1)
		if made != nil {
			flags = 0
		}
		var w agree.Outcome
		w, round, err = c.agreed(s.Agree(ctx, opShrink, flags))(opShrink)
		if err == nil && w.Flags&1 == 1 && w.Failed.Equal(v.Failed) {
			return child, nil
		}
		if child != nil {
			err = errors.Join(err, child.Close())
		}
		if err == nil && w.Failed.Equal(v.Failed) {
			if made == nil {
				made = fmt.Errorf("%w: the new communicator could not be made on another rank", ErrGaveUp)
			}
			err = made
		}
		v = w
	}
	return nil, fmt.Errorf("shrink: %w", err)
}

// without lists this communicator's ranks but those that failed.
func (c *Comm) without(failed agree.Set) []int {
	var out []int
	for r := range c.size {
		if !failed.Has(r) {
			out = append(out, r)
		}
	}
	return out
}

// guarded makes a communicator of some ranks and as many newcomers, and gives up as soon as one of the
// ranks has failed.
func (c *Comm) guarded(ctx context.Context, s *recovery.Session, name string, members []int, newcomers int) (*Comm, error) {
	set := agree.NewSet(c.size)
	for _, r := range members {
		set.Add(r)
	}
	ctx, cancel := s.Guard(ctx, set)
	defer cancel()
	child, err := c.remake(ctx, name, members, newcomers)
	return child, because(ctx, err)
}

// remake makes a communicator of ranks of this one, with newcomers after them. All call it with the same
// name, which is not used twice.
func (c *Comm) remake(ctx context.Context, name string, members []int, newcomers int) (*Comm, error) {
	former := slices.Clone(members)
	for range newcomers {
		former = append(former, -1)
	}
	rank := slices.Index(members, c.rank)
	g, err := c.form(ctx, c.planeName(name), rank, len(former), c.peers[members[0]].Addrs)
	if err != nil {
		return nil, err
	}
	cfg := c.cfg
	cfg.Group = g
	cfg.heir = &heir{port: c.standby.port, generation: c.standby.generation + 1, former: former}
	return New(ctx, cfg)
}

// planeName names the control plane of a communicator that is made of this one.
func (c *Comm) planeName(name string) string {
	return fmt.Sprintf("%s/recovered/%016x/%s", c.cfg.Bootstrap.RunID, c.epoch, name)
}

// form makes the control plane of a communicator whose rank 0 has the addresses given.
func (c *Comm) form(ctx context.Context, name string, rank, size int, addrs []string) (bootstrap.Group, error) {
	if c.cfg.local != nil {
		g := c.cfg.local.Join(name, rank, size)
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(err, g.Close()) // the others need not wait for this one
		}
		return g, nil
	}
	b := c.cfg.Bootstrap
	b.Rank, b.Size, b.LocalRank, b.LocalSize = rank, size, 0, 0
	b.Root, b.RootIsGuess = strings.Join(addrs, ","), false
	b.Store, b.Rendezvous, b.PMIFD, b.Listener = nil, "", 0, nil
	b.RunID, b.Epoch = name, 0
	if c.standby.port != nil {
		b.Port = c.standby.port.Port
	}
	return bootstrap.Connect(ctx, b)
}

// pass hands the session over to a communicator made of this one: ranks that come too late hear from
// it that they do. Older sessions end.
func (c *Comm) pass(child *Comm) {
	s := &c.standby
	if s.elder != nil {
		s.elder.Retire()
		s.elder = nil
	}
	child.standby.elder = s.session
	child.standby.hall, s.hall = s.hall, nil // rank 0 stays rank 0
	s.given.Store(true)
}

// Generation counts the recoveries (Shrink, Grow) behind this communicator: 0 for one made by New.
func (c *Comm) Generation() uint64 { return c.standby.generation }

// Former returns which rank of the communicator that this one was recovered from a rank was; −1: none, it
// is new. Without such a one it returns rank.
func (c *Comm) Former(rank int) int {
	if c.standby.former == nil {
		return rank
	}
	return c.standby.former[rank]
}

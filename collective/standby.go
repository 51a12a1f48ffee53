package collective

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/internal/recovery"
	"go.uber.org/zap"
)

// standby is what a communicator keeps ready for the case that ranks fail: an open port, and a session
// in which it answers those that have noticed. Nothing is dialled before.
type standby struct {
	port    *sharedPort // nil: this rank cannot be reached
	session *recovery.Session
	given   atomic.Bool       // an heir has taken the session over
	elder   *recovery.Session // of the communicator that this one was recovered from

	hall    *hall // rank 0's, for newcomers; nil: not open
	growths int   // calls of Grow

	lastBeat atomic.Pointer[time.Time]
	stopped  atomic.Bool // this rank has been, for long

	recall recall

	generation uint64
	former     []int // by rank: its rank there, −1: it is new; nil: there was none
}

// sharedPort is a process's port, which its communicator shares with those recovered from it.
type sharedPort struct {
	*bootstrap.Port
	users atomic.Int32
}

func (p *sharedPort) release() {
	if p.users.Add(-1) == 0 {
		p.Close()
	}
}

// heir is what a communicator takes over from the one it is recovered from.
type heir struct {
	port       *sharedPort
	generation uint64
	former     []int
}

// The operations that ranks agree in.
const (
	opAgree = iota + 1
	opShrink
	opGrow
)

// inherit takes over what the configuration carries, and the group with it.
func (c *Comm) inherit() {
	h := c.cfg.heir
	if h == nil {
		return
	}
	c.cfg.heir = nil // it is not for communicators split off this one
	c.ownGroup = c.cfg.Group != nil
	c.cfg.Group = nil
	c.standby.generation, c.standby.former = h.generation, h.former
	if h.port != nil {
		h.port.users.Add(1)
		c.standby.port = h.port
	}
}

// openPort makes this rank one that others can reach. Without, it works, but cannot recover.
func (c *Comm) openPort(ctx context.Context) {
	if c.standby.port != nil || c.size == 1 {
		return
	}
	if err := c.needPort(ctx); err != nil {
		c.alarm().Warn("this rank has no port of its own: after a failure it can only be restarted", zap.Error(err))
	}
}

func (c *Comm) needPort(ctx context.Context) error {
	if c.standby.port != nil {
		return nil
	}
	var p *bootstrap.Port
	var err error
	switch {
	case c.cfg.local != nil:
		p = c.cfg.local.OpenPort()
	case c.cfg.network != nil:
		return fmt.Errorf("%w: goroutines without a network of their own", ErrUnavailable)
	default:
		if p, err = bootstrap.OpenPort(ctx, c.cfg.Bootstrap); err != nil {
			return err
		}
	}
	c.standby.port = &sharedPort{Port: p}
	c.standby.port.users.Store(1)
	return nil
}

func (s *standby) addrs() []string {
	if s.port == nil {
		return nil
	}
	return s.port.Addrs()
}

// openSession begins to answer ranks that recover. It runs when the communicator is ready.
func (c *Comm) openSession() {
	if c.standby.port == nil || c.size == 1 {
		return
	}
	cfg := recovery.Config{
		Circle: bootstrap.Circle{Secret: c.cfg.Bootstrap.Secret, Rank: c.rank, Size: c.size,
			RunID: fmt.Sprintf("%s/recovery/%016x", c.cfg.Bootstrap.RunID, c.epoch)},
		Port: c.standby.port.Port, Describe: c.describe, Called: c.called,
	}
	if c.cfg.network == nil {
		cfg.Silence = c.heartbeat()
	}
	for r := range c.peers {
		cfg.Addrs = append(cfg.Addrs, c.peers[r].Addrs)
	}
	c.standby.session = recovery.Open(cfg)
}

// causeFirst is how long a call in flight has to find out why another rank recovers, before it is ended:
// what it waits for, or the notice that the other rank left, says more.
const causeFirst = 100 * time.Millisecond

// called is told that another rank takes part in an agreement.
func (c *Comm) called(rank int, op uint8) {
	if op != opShrink {
		return
	}
	c.standby.recall.start(func() {
		if c.closed.Load() || c.broken.Load() != nil {
			return
		}
		if n := c.told(); n != nil { // while this rank was in no call
			c.breaks(&StepError{Kind: kindOf(n.Cause), Call: "between calls", Rank: c.rank, Peer: n.Culprit, Step: -1, Err: n})
			return
		}
		c.Revoke(fmt.Errorf("%s recovers", c.describe(rank)))
	})
}

// recall does once what a rank must that has been told of an agreement, causeFirst later.
type recall struct {
	mu    sync.Mutex
	over  bool
	timer *time.Timer
	done  chan struct{}
}

func (r *recall) start(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.timer != nil {
		return
	}
	r.done = make(chan struct{})
	r.timer = time.AfterFunc(causeFirst, func() {
		defer close(r.done)
		f()
	})
}

// end makes sure that it is not done any more, and returns when it is not being done.
func (r *recall) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && r.timer != nil && !r.timer.Stop() {
		<-r.done
	}
	r.over = true
}

// told returns the notice of a failure that some peer has left, if this rank is not closed.
func (c *Comm) told() *link.Notice {
	c.life.RLock()
	defer c.life.RUnlock()
	if c.released || c.closed.Load() {
		return nil
	}
	c.tend()
	return c.mesh.Failed()
}

// close leaves all agreements. Ranks that are in one go on without this one.
func (s *standby) close() {
	s.interrupt()
	if s.elder != nil {
		s.elder.Close()
	}
	if s.hall != nil {
		s.hall.close()
		s.hall = nil
	}
	if s.port != nil {
		s.port.release()
		s.port = nil
	}
}

// interrupt ends the agreement that this rank may be in.
func (s *standby) interrupt() {
	if s.session != nil && !s.given.Load() {
		s.session.Close()
	}
}

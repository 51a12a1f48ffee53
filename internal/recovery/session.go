// Package recovery runs the agreement on who is left (internal/agree) between the processes of a
// communicator, over contacts of its own: what broke cannot carry it.
//
// A [Session] costs a communicator nothing until somebody needs it: nothing is dialled before. Then each
// rank contacts the coordinator, the lowest rank that it takes for alive, and the coordinator contacts
// those that have not come. Who takes part watches whom it waits for: a contact that ends means that the
// other is gone or has left for good, silence for a time that it may be stopped or cut off. A rank that
// computes, and has not noticed a failure, answers in the background.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/agree"
)

// The errors of a session, which end it.
var (
	// ErrOut: other ranks took this one for lost and go on without it.
	ErrOut = errors.New("the other ranks took this one for lost")
	// ErrNoQuorum: too many ranks are silent for the rest to know that these do not go on as well.
	ErrNoQuorum = errors.New("no majority of the ranks answers")
	// ErrLeft: the session has been closed, or has ended before.
	ErrLeft = errors.New("this rank has left")
)

// ErrElsewhere ends a guarded context when the flag that a member has contributed is 0.
var ErrElsewhere = errors.New("it failed on another rank")

// Config describes a session.
type Config struct {
	bootstrap.Circle
	// Port is where the other ranks reach this one. The session does not close it.
	Port *bootstrap.Port
	// Addrs are the ranks' addresses.
	Addrs [][]string
	// Silence is how long a rank that is waited for may give no sign of life; ≤ 0: for ever.
	Silence time.Duration
	// Describe names a rank for messages.
	Describe func(rank int) string
	// Called is told, from any goroutine and maybe more than once, that another rank takes part in an
	// operation. It must not call the session.
	Called func(rank int, op uint8)
}

// Session is a rank's part in the agreements of a communicator. Its methods may be called from any
// goroutine; Agree from one at a time.
type Session struct {
	cfg      Config
	entrance *bootstrap.Entrance
	life     context.Context
	end      context.CancelFunc
	workers  sync.WaitGroup

	mu      sync.Mutex
	machine *agree.Machine
	peers   []peer
	busy    int // who needs the ranks watched
	calls   context.Context
	idle    context.CancelFunc // ends calls and the watch
	changed chan struct{}      // closed when anything has happened
	guards  map[*guard]struct{}
	stuck   time.Time // since when the round waits for a quorum
	looked  time.Time // latest look at the peers
	closed  bool
	why     error // of the end
}

// peer is what a session knows of another rank.
type peer struct {
	links   []*link
	waiting [][]byte // until there is a link
	calling bool
	since   time.Time // watched since
	heard   time.Time // latest sign of life
	pinged  time.Time
	hinted  bool  // it has been lost or silent elsewhere
	cause   error // why it is suspected
}

// Open begins a session, in which this rank answers others.
func Open(cfg Config) *Session {
	s := &Session{
		cfg: cfg, machine: agree.New(cfg.Rank, cfg.Size), peers: make([]peer, cfg.Size),
		changed: make(chan struct{}), guards: map[*guard]struct{}{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.entrance = cfg.Port.Enter(cfg.Circle, bootstrap.ForRecovery)
	s.workers.Go(s.accept)
	return s
}

// Close leaves. Ranks that agree go on without this one. It may be called more than once.
func (s *Session) Close() {
	s.leave(ErrLeft)
	s.workers.Wait()
}

// Retire ends a session whose ranks have agreed to go on elsewhere. Unlike after Close, a rank that has
// missed that does not take this one for gone.
func (s *Session) Retire() {
	s.entrance.Close()
	s.mu.Lock()
	s.close(ErrLeft)
	s.mu.Unlock()
	s.workers.Wait()
}

// leave ends this rank's part for a reason.
func (s *Session) leave(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.entrance.Leave()
	}
	s.close(why)
}

// close ends this rank's part. The caller holds the lock.
func (s *Session) close(why error) {
	if s.closed {
		return
	}
	s.closed, s.why = true, why
	s.end()
	if s.idle != nil {
		s.idle()
	}
	for r := range s.peers {
		for _, l := range s.peers[r].links {
			l.finish()
		}
	}
	s.notify()
}

// accept lets other ranks in.
func (s *Session) accept() {
	for {
		c, err := s.entrance.Accept(s.life)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.adopt(c)
		s.mu.Unlock()
	}
}

// adopt makes a contact one of a peer's links. The caller holds the lock.
func (s *Session) adopt(c *bootstrap.Contact) {
	if c.Rank < 0 || c.Rank >= s.cfg.Size || c.Rank == s.cfg.Rank || s.closed {
		c.Close()
		return
	}
	p := &s.peers[c.Rank]
	l := newLink(c)
	p.links = append(p.links, l)
	s.workers.Go(l.write)
	s.workers.Go(func() { s.read(l) })
	l.post([]byte{framePong})
	for _, b := range p.waiting {
		l.post(b)
	}
	p.waiting = nil
}

// read takes in what a peer says until the contact ends.
func (s *Session) read(l *link) {
	r := l.contact.Rank
	for {
		b, err := l.contact.Receive()
		s.mu.Lock()
		if err != nil {
			s.lost(l, err)
			s.mu.Unlock()
			return
		}
		s.peers[r].heard = time.Now()
		l.heard = true
		op, err := s.hear(l, b)
		if err != nil {
			s.lost(l, err)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if op != 0 && s.cfg.Called != nil {
			s.cfg.Called(r, op)
		}
	}
}

// hear takes in one frame and returns the operation that the peer takes part in, or 0.
func (s *Session) hear(l *link, b []byte) (op uint8, err error) {
	if len(b) == 0 {
		return 0, errors.New("empty frame")
	}
	switch b[0] {
	case framePing:
		l.post([]byte{framePong})
	case framePong:
	case frameMessage:
		msg, err := agree.Parse(b[1:], s.cfg.Size)
		if err != nil {
			return 0, err
		}
		msg.From, msg.To = l.contact.Rank, s.cfg.Rank
		s.machine.Step(msg)
		s.pump()
		if msg.Kind == agree.Contribute || msg.Kind == agree.Collect {
			return msg.Op, nil
		}
	default:
		return 0, fmt.Errorf("frame of kind %d", b[0])
	}
	return 0, nil
}

// lost notes that nothing more will be heard on a contact.
func (s *Session) lost(l *link, err error) {
	r := l.contact.Rank
	p := &s.peers[r]
	p.links = slices.DeleteFunc(p.links, func(o *link) bool { return o == l })
	l.finish()
	if s.closed {
		return
	}
	if ended(err) && l.heard {
		s.suspect(r, true, errors.New("its process ended, or it left"))
		return
	}
	// Another call will tell: it may have said nothing because it has not got the contact.
	s.call(r)
}

// suspect takes a rank for failed. The caller holds the lock.
func (s *Session) suspect(r int, certain bool, cause error) {
	if s.peers[r].cause == nil {
		s.peers[r].cause = cause
	}
	s.machine.Suspect(r, certain)
	s.pump()
}

// pump sends what the machine has to say and lets waiters look at its state. The caller holds the lock.
func (s *Session) pump() {
	for _, msg := range s.machine.Take() {
		b := msg.Append([]byte{frameMessage})
		p := &s.peers[msg.To]
		switch {
		case len(p.links) > 0:
			p.links[0].post(b)
		case msg.Kind != agree.Out: // else it will call, should it live
			p.waiting = append(p.waiting, b)
			if msg.To == s.machine.Coordinator() {
				s.call(msg.To)
			}
		}
	}
	s.notify()
}

// notify wakes all that wait for a change. The caller holds the lock.
func (s *Session) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
	for g := range s.guards {
		if why := s.alarm(g); why != nil {
			g.cancel(why)
			delete(s.guards, g)
		}
	}
}

// Agree contributes to the next round and returns what it decided, and its number. All ranks that take
// part call it equally often. When ctx ends, this rank leaves.
func (s *Session) Agree(ctx context.Context, op uint8, flags uint64) (agree.Outcome, uint64, error) {
	defer s.Watch()()
	s.mu.Lock()
	round := s.machine.Round()
	if !s.closed {
		s.machine.Start(op, flags)
		s.pump()
	}
	for {
		v, done := s.machine.Decision(round)
		why, changed := s.why, s.changed
		if why == nil && !done {
			why = s.fatal()
		}
		missing := s.machine.Missing()
		s.mu.Unlock()
		switch {
		case done:
			return v, round, nil
		case why != nil:
			s.leave(why)
			return v, round, why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			v, done = s.machine.Decision(round) // which others may act upon
			s.mu.Unlock()
			if done {
				return v, round, nil
			}
			err := fmt.Errorf("%w: waited for %s", context.Cause(ctx), s.describe(missing))
			s.leave(err)
			return v, round, err
		}
		s.mu.Lock()
	}
}

// fatal returns why the agreement is over for this rank. The caller holds the lock.
func (s *Session) fatal() error {
	switch {
	case s.machine.Out():
		return ErrOut
	case s.machine.Abandoned():
		return fmt.Errorf("%w: nothing was heard of %s", ErrNoQuorum, s.describe(s.machine.Suspects().Ranks()))
	}
	return nil
}

func (s *Session) describe(ranks []int) string {
	text := ""
	for i, r := range ranks {
		switch {
		case i == 8:
			return fmt.Sprintf("%s and %d more", text, len(ranks)-i)
		case i > 0:
			text += ", "
		}
		text += s.cfg.Describe(r)
	}
	return text
}

// Doubt makes this rank take no failure for certain, because another rank took it for lost.
func (s *Session) Doubt() {
	s.mu.Lock()
	s.machine.Doubt()
	s.mu.Unlock()
}

// Hint says that a rank has been found lost or silent elsewhere, so that it is called at once, which
// proves the end of most processes, and less patience is due.
func (s *Session) Hint(rank int) {
	s.mu.Lock()
	s.peers[rank].hinted = true
	s.mu.Unlock()
}

// Failures returns the ranks that are taken for failed, each with the reason that this rank knows.
func (s *Session) Failures() map[int]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int]error{}
	for _, r := range s.machine.Suspects().Ranks() {
		if out[r] = s.peers[r].cause; out[r] == nil {
			out[r] = errors.New("another rank took it for lost")
		}
	}
	return out
}

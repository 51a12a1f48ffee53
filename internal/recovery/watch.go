package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/agree"
)

const (
	lookEvery  = 20 * time.Millisecond // at the peers that are watched
	headStart  = 50 * time.Millisecond // for members to call the coordinator before it calls them, unless there is a hint
	longestGap = time.Second           // between looks; after a longer one this rank has been stopped itself
	hintedPart = 4                     // of the patience, for a rank that has been silent elsewhere
	lastWait   = time.Second           // for a quorum, if silence is not bounded
)

// Watch makes this rank look after those that it waits for, until the returned function is called.
func (s *Session) Watch() (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy++; s.busy == 1 && !s.closed {
		s.calls, s.idle = context.WithCancel(s.life)
		s.looked = time.Time{}
		calls := s.calls
		s.workers.Go(func() { s.watch(calls) })
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy--; s.busy == 0 && s.idle != nil {
			s.idle()
			s.idle = nil
		}
	}
}

func (s *Session) watch(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		s.mu.Lock()
		s.look(time.Now())
		s.mu.Unlock()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// look sees after the ranks that this one waits for.
func (s *Session) look(now time.Time) {
	if s.closed {
		return
	}
	awake := now.Sub(s.looked) <= longestGap
	s.looked = now
	coordinator := s.machine.Coordinator()
	for r := range s.peers {
		p := &s.peers[r]
		if r == s.cfg.Rank || s.machine.Suspects().Has(r) || coordinator != s.cfg.Rank && r != coordinator {
			p.since = time.Time{}
			continue
		}
		if p.since.IsZero() || !awake {
			p.since = now
		}
		switch {
		case len(p.links) > 0 && p.links[0].clogged:
			s.suspect(r, false, errors.New("it takes no messages"))
			continue
		case len(p.links) == 0:
			if r == coordinator || p.hinted || now.Sub(p.since) >= headStart {
				s.call(r)
			}
		case now.Sub(p.pinged) >= s.pingEvery():
			p.pinged = now
			p.links[0].post([]byte{framePing})
		}
		last := p.since
		if p.heard.After(last) {
			last = p.heard
		}
		if limit := s.patience(p); limit > 0 && now.Sub(last) > limit {
			s.suspect(r, false, fmt.Errorf("it gave no sign of life for %v: it may be stopped, or cut off", limit))
		}
	}
	s.await(now)
}

// await looks for a quorum that is missing: silent ranks may prove to be gone after all.
func (s *Session) await(now time.Time) {
	if !s.machine.Stuck() {
		s.stuck = time.Time{}
		return
	}
	if s.stuck.IsZero() {
		s.stuck = now
	}
	limit := s.cfg.Silence
	if limit <= 0 {
		limit = lastWait
	}
	if now.Sub(s.stuck) > limit {
		s.machine.Abandon()
		s.pump()
		return
	}
	for _, r := range s.machine.Suspects().Ranks() {
		if len(s.peers[r].links) == 0 {
			s.call(r)
		}
	}
}

func (s *Session) patience(p *peer) time.Duration {
	if p.hinted {
		return s.cfg.Silence / hintedPart
	}
	return s.cfg.Silence
}

// pingEvery is how often a rank that is watched is asked for a sign of life.
func (s *Session) pingEvery() time.Duration {
	if s.cfg.Silence <= 0 {
		return time.Second
	}
	return min(time.Second, max(lookEvery, s.cfg.Silence/(4*hintedPart)))
}

// call contacts a rank, unless that is being done. The caller holds the lock.
func (s *Session) call(r int) {
	p := &s.peers[r]
	if p.calling || s.closed || s.busy == 0 {
		return
	}
	if len(s.cfg.Addrs[r]) == 0 {
		return // it cannot be called; patience ends
	}
	p.calling = true
	ctx := s.calls
	s.workers.Go(func() {
		c, err := s.cfg.Port.Call(ctx, s.cfg.Circle, bootstrap.ForRecovery, r, s.cfg.Addrs[r])
		s.mu.Lock()
		defer s.mu.Unlock()
		p.calling = false
		switch {
		case err == nil:
			s.adopt(c)
		case errors.Is(err, bootstrap.ErrRefused):
			s.suspect(r, true, err)
		}
	})
}

// guard is a context that ends when one of some ranks fails.
type guard struct {
	members agree.Set
	round   uint64
	cancel  context.CancelCauseFunc
}

// Guard returns a context that also ends when a rank of members is suspected, or contributes no flag to
// the next round, or when this rank's part ends: when what they do together cannot succeed any more.
func (s *Session) Guard(ctx context.Context, members agree.Set) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guard{members: members, cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.round = s.machine.Round()
	if why := s.alarm(g); why != nil {
		cancel(why)
		return ctx, func() {}
	}
	s.guards[g] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		delete(s.guards, g)
		s.mu.Unlock()
		cancel(nil)
	}
}

// alarm returns why a guard has to end its context, or nil. The caller holds the lock.
func (s *Session) alarm(g *guard) error {
	if s.why != nil {
		return s.why
	}
	if why := s.fatal(); why != nil {
		return why
	}
	for _, r := range s.machine.Suspects().Ranks() {
		if g.members.Has(r) {
			return fmt.Errorf("%s failed meanwhile", s.cfg.Describe(r))
		}
	}
	if s.machine.Round() == g.round && s.machine.Least() == 0 {
		return ErrElsewhere
	}
	return nil
}

//go:build linux

package tcp

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/internal/rail"
)

// rails is what an endpoint with several sockets needs to go on when one of them fails: package rail has the
// rules, docs/wire-tcp.md the frames. A write is done when the peer has told that it has landed; until then its
// memory is the endpoint's, so that it can be sent again. With one socket none of this is there.
type rails struct {
	all rail.Set

	// Guarded by the transmitter's mu.
	send    rail.Sender
	landed  uint64   // to be told to the peer: this many writes have landed,
	ackDue  bool     // because it waits for that,
	lostDue rail.Set // or, on these sockets, with the sockets that this end has given up

	// Guarded by the queue's mu.
	recv rail.Receiver
	lost []lostRail // in the order in which they were lost
	told int        // of lost, those that have been logged
}

// lostRail is a socket that this end has given up.
type lostRail struct {
	index int
	path  string
	why   error
}

func newRails(n int) *rails {
	return &rails{all: rail.First(n), recv: rail.NewReceiver(n)}
}

// errGivenUp is why this end gives up a socket that still works here.
var errGivenUp = errors.New("the peer has given it up")

// upset is something that has happened to rails, kept until the queue does not go through its lanes.
type upset struct {
	l    *lane
	why  error    // the lane failed; nil: by it, the peer told that it has
	dead rail.Set // given up these
	n    uint64   // after so many writes had landed.
}

// mendLocked deals with what has happened. The queue's mu is held.
func (q *queue) mendLocked() {
	for _, u := range q.upset {
		e := u.l.e
		var cause error
		switch {
		case e.dead.Load():
		case u.why == nil:
			cause = e.peerLost(u)
		case e.rx.bye: // the peer closes its endpoint: all sockets are about to end
		default:
			cause = u.l.loseRail(u.why)
		}
		if cause != nil {
			q.ended = append(q.ended, ending{e, cause})
		}
	}
	clear(q.upset)
	q.upset = q.upset[:0]
}

// stuckLocked finds lanes on which sending fails, once what the peer said before has been read. The
// transmitter's mu is held.
func (q *queue) stuckLocked(e *endpoint) {
	for _, l := range e.lanes {
		switch {
		case l.out.stuck == 0:
		case !l.out.noted:
			l.out.noted = true
			q.revisitLocked(l)
		case !l.in.again:
			q.upset = append(q.upset, upset{l: l, why: l.out.stuck})
		}
	}
}

// loseRail gives up a lane: nothing is read from it or sent by it after this. The peer is told by all others.
// If there is none, the endpoint is broken and the cause returned. The queue's mu is held.
func (l *lane) loseRail(why error) error {
	e := l.e
	r, t, q := e.rails, &e.tx, e.cq
	if l.fd < 0 || e.dead.Load() {
		return nil
	}
	r.lost = append(r.lost, lostRail{l.index, l.path, l.why(why)})
	if len(e.lanes) == 1 {
		return e.failRails()
	}
	l.dropFrame()
	t.mu.Lock()
	defer t.mu.Unlock()
	l.in.eof = true
	q.removeLocked([]*lane{l})
	t.blockLocked(l, false)
	l.out.drop()
	e.lanes = without(slices.Clone(e.lanes), l)
	l.lead, e.lanes[0].lead = false, true
	l.cut()
	r.send.Lose(l.index)
	r.recv.Lose(l.index)
	r.landed, r.lostDue = e.rx.seq, 0
	for _, o := range e.lanes {
		r.lostDue = r.lostDue.With(o.index)
		q.revisitLocked(o) // what is parked there may have waited for this lane
	}
	t.pumpLocked()
	t.settleLocked()
	return nil
}

// endRails breaks the endpoint at the end of the streams of all its lanes; that of l ended with errno.
func (e *endpoint) endRails(l *lane, errno syscall.Errno) error {
	r := e.rails
	if e.rx.bye && len(r.lost) == 0 {
		return e.fail(e.lost(l, errPeerClosed))
	}
	for _, o := range e.lanes {
		why := o.ended(o.in.errno)
		if o == l {
			why = o.ended(errno)
		}
		r.lost = append(r.lost, lostRail{o.index, o.path, o.why(why)})
	}
	return e.failRails()
}

// failRails breaks the endpoint because no rail is left, and returns what became of each.
func (e *endpoint) failRails() error {
	cause, sep := fmt.Errorf("tcp: %s: %w: all %d sockets failed", e.label, rdma.ErrPeerLost, len(e.rails.lost)), ":"
	for _, x := range e.rails.lost {
		cause, sep = fmt.Errorf("%w%s socket %d (%s): %w", cause, sep, x.index, x.path, x.why), ";"
	}
	return e.fail(cause)
}

// cut closes a lane by a reset, so that the peer hears of it if it can. The transmitter's mu is held.
func (l *lane) cut() {
	l.withTCP(resetOnClose)
	if l.relay != nil {
		_ = l.relay.tcp.Close()
	}
	_ = unix.Close(l.fd)
	l.fd = -1
}

// peerLost takes the peer's word that it reads some sockets no more. If that are all that this end has given up,
// the writes that had not landed are sent again by the others.
func (e *endpoint) peerLost(u upset) error {
	r, t := e.rails, &e.tx
	for _, l := range slices.Clone(e.lanes) {
		if u.dead.Has(l.index) {
			if cause := l.loseRail(errGivenUp); cause != nil {
				return cause
			}
		}
	}
	t.mu.Lock()
	again, err := r.send.Told(u.dead, u.n, t.done, t.next)
	if again {
		t.landedLocked(u.n)
		_, t.next = r.send.Round()
		t.off = 0
		t.pumpLocked()
		t.settleLocked()
	}
	t.mu.Unlock()
	if err != nil {
		return e.lanes[0].refuse(failProtocol, err)
	}
	if again { // the peer lives: it was the rail
		for ; r.told < len(r.lost); r.told++ {
			x := r.lost[r.told]
			e.dev.opts.Log.Warn("lost a socket of a connection; what it had not delivered goes by the others",
				zap.String("connection", e.label), zap.Int("socket", x.index), zap.String("addresses", x.path),
				zap.Int("left", len(e.lanes)), zap.Error(x.why))
		}
	}
	return nil
}

// loseLane gives up a lane, and the endpoint if it is the last. It is called without locks.
func (e *endpoint) loseLane(l *lane, what error) {
	e.cq.mu.Lock()
	if e.rails == nil {
		e.cq.report(e, e.fail(e.lost(l, what)))
		return
	}
	e.cq.report(e, l.loseRail(what))
}

// report unlocks the queue and tells the user, if the endpoint broke, or has him look.
func (q *queue) report(e *endpoint, cause error) {
	ready := cause == nil || e.tx.harvest.Load()
	q.mu.Unlock()
	if cause != nil {
		e.tell(cause)
	}
	if ready {
		q.notify()
	}
}

// othersGoOn reports whether some sockets of an endpoint have not ended, and the peer has not said that it
// closes. The queue's mu is held.
func (e *endpoint) othersGoOn() bool {
	for _, l := range e.lanes {
		if !l.in.over && !l.in.eof {
			return !e.rx.bye && len(e.lanes) > 1
		}
	}
	return false
}

// checkRail gives up a lane that has ended while others have not, once what the peer sent by it has been read,
// or will not be for long. It unlocks the queue.
func (q *queue) checkRail(l *lane, polls uint64, deadline time.Time) {
	if !l.in.eof && time.Now().Before(deadline) {
		q.checkEndLater(l, polls, deadline)
		q.mu.Unlock()
		return
	}
	q.report(l.e, l.loseRail(l.ended(l.endErrno())))
}

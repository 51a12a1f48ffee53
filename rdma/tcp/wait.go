//go:build linux

package tcp

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

var _ rdma.Waiter = (*queue)(nil)

// slumber is the state of a queue whose user sleeps in Wait.
type slumber struct {
	on     bool // Wait was called lately: input is in the in set, and Poll asks that
	nested bool // the out set is in the in set
	woken  int  // events that Wait left for the next Poll
	events [64]unix.EpollEvent
}

// Wait sleeps in the in set. What woke it is kept, so that the next Poll needs to ask nobody.
func (q *queue) Wait(d time.Duration) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if err := q.slumberLocked(); err != nil {
		q.mu.Unlock()
		return err
	}
	if q.busyLocked() {
		q.mu.Unlock()
		return nil
	}
	q.sleeping.Lock() // the set must not be closed meanwhile
	fd := q.in
	q.mu.Unlock()
	n, errno := epollWait(fd, q.sleep.events[:], d)
	q.sleeping.Unlock()
	switch errno {
	case 0:
		q.sleep.woken = n
	case syscall.EINTR: // a signal: the caller looks again
	default:
		return fmt.Errorf("tcp: wait: %w", errno)
	}
	return nil
}

// slumberLocked has the in set tell about everything that Poll could go on with.
func (q *queue) slumberLocked() error {
	q.idle = 0
	if !q.sleep.on {
		if err := q.listenLocked(q.lanes); err != nil {
			return err
		}
		q.sleep.on = true
	}
	if q.blocked.Load() > 0 && !q.sleep.nested {
		if err := control(q.in, unix.EPOLL_CTL_ADD, q.out, unix.EPOLLIN, slotOut); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		q.sleep.nested = true
	}
	return nil
}

// busyLocked reports whether Poll has something to do that no event would tell.
func (q *queue) busyLocked() bool {
	if q.sleep.woken > 0 || q.harvests.Load() > 0 || len(q.again) > 0 || len(q.ended) > 0 || len(q.upset) > 0 {
		return true
	}
	for _, l := range q.lanes {
		if l.lead && l.e.tx.wants.Load() && (q.blocked.Load() == 0 || !l.e.full()) {
			return true
		}
	}
	return false
}

// full reports whether some socket of the endpoint is full, which the out set tells the end of, and no other
// may take something.
func (e *endpoint) full() bool {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.tx.rest {
		return false
	}
	for _, l := range e.lanes {
		if l.out.blocked {
			return true
		}
	}
	return false
}

// visitWokenLocked receives on the lanes that woke the last Wait.
func (q *queue) visitWokenLocked(cs []rdma.Completion) (n int) {
	for i := range q.sleep.events[:q.sleep.woken] {
		if l := q.laneOf(&q.sleep.events[i]); l != nil {
			n += q.visitLocked(l, cs[n:])
		} else if q.sleep.events[i].Fd == slotOut && q.blocked.Load() == 0 {
			q.unblockLocked() // of what nobody waits for any more; else sendLocked asks
		}
	}
	q.sleep.woken = 0
	return n
}

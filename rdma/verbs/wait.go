package verbs

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// pollable duplicates a non-blocking descriptor of the library for Go's poller. Reads of raw wait there until f is closed.
func pollable(fd int, name string) (f *os.File, raw syscall.RawConn, err error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f = os.NewFile(uintptr(dup), name)
	raw, _ = f.SyscallConn() // an open file has one
	return f, raw, nil
}

// heard has events ring from now on: a goroutine waits for them in Go's poller.
func (q *queue) heard() error {
	q.listen.Lock()
	defer q.listen.Unlock()
	if q.file != nil || q.down {
		return nil
	}
	f, raw, err := pollable(q.ch.FD, "completion channel")
	if err != nil {
		return explain(err, 0)
	}
	q.file = f
	q.waiter.Go(func() { q.wait(raw) })
	return nil
}

// listening reports whether that goroutine takes the events.
func (q *queue) listening() bool {
	q.listen.Lock()
	defer q.listen.Unlock()
	return q.file != nil
}

// wait sleeps in Go's poller and rings for each event while armed.
func (q *queue) wait(raw syscall.RawConn) {
	for {
		if err := raw.Read(func(uintptr) bool { return q.ch.Next() }); err != nil {
			return // closed
		}
		q.ringOnce()
	}
}

func (q *queue) ringOnce() {
	if q.armed.CompareAndSwap(true, false) && q.ring != nil {
		q.ring()
	}
}

// Arm asks for one event, and then looks whether something came before the question. After an error nothing is asked for.
func (q *queue) Arm() (err error) {
	if !q.guard.enter() {
		return fmt.Errorf("verbs: %w: completion queue", rdma.ErrClosed)
	}
	defer q.guard.leave()
	if p := q.err.Load(); p != nil {
		return *p
	}
	if q.ring == nil || !q.armed.CompareAndSwap(false, true) {
		return nil
	}
	defer func() {
		if err != nil {
			q.armed.Store(false)
		}
	}()
	if err := q.heard(); err != nil {
		return err
	}
	if q.next < q.have {
		q.ringOnce()
		return nil
	}
	if err := q.cq.Arm(); err != nil {
		return err
	}
	err = q.refill(pollBatch)
	if q.have > 0 {
		q.ringOnce()
	}
	return err
}

// Wait sleeps in one system call on the completion channel, without Go's poller and the two threads that
// would have to be woken there.
func (q *queue) Wait(d time.Duration) error {
	if !q.guard.enter() {
		return fmt.Errorf("verbs: %w: completion queue", rdma.ErrClosed)
	}
	defer q.guard.leave()
	if work, err := q.toSleep(); work || err != nil {
		return err
	}
	n, err := ppoll(q.sleep[:], d)
	switch {
	case err == unix.EINTR: // a signal: the caller looks again
		return nil
	case err != nil:
		return fmt.Errorf("verbs: %v: wait for completions: %w", q.dev, err)
	case n > 0:
		q.woken()
	}
	return nil
}

// toSleep asks for an event, before a sleep on the channel; work: there is something to poll already.
func (q *queue) toSleep() (work bool, err error) {
	if p := q.err.Load(); p != nil {
		return false, *p
	}
	if q.next < q.have {
		return true, nil
	}
	if q.asked && !q.listening() {
		return false, nil
	}
	if err := q.cq.Arm(); err != nil {
		return false, err
	}
	q.asked = true
	err = q.refill(pollBatch)
	return q.have > 0, err
}

// woken takes the events that ended a sleep, unless the goroutine of wait does.
func (q *queue) woken() {
	if q.listening() {
		return
	}
	for q.ch.Next() {
	}
	q.asked = false
}

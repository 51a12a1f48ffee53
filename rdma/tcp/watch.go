//go:build linux

package tcp

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The numbers of events that are not about a lane.
const (
	slotIn  = -1
	slotOut = -2
)

const (
	// grace is how long a queue that is not being polled may leave an ended connection undiscovered.
	grace = 10 * time.Millisecond
	// patience is how long the user may leave unpolled what the peer sent before it ended its
	// stream, until he is told of the end. There is none for a connection that was reset.
	patience = 500 * time.Millisecond
)

// watcher sleeps in the runtime's poller until a connection ends, or an armed queue has something.
type watcher struct {
	q    *queue
	file *os.File
	raw  syscall.RawConn
	fd   int
}

func newWatcher(q *queue) (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // which makes it one for the runtime's poller
		_ = unix.Close(fd)
		return nil, err
	}
	w := &watcher{q: q, fd: fd, file: os.NewFile(uintptr(fd), "tcp queue watch")}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

// add watches for the end of a lane's connection.
func (w *watcher) add(l *lane) error {
	const end = unix.EPOLLRDHUP | unix.EPOLLET
	err := control(w.fd, unix.EPOLL_CTL_ADD, l.fd, end, l.slot)
	if err == nil && l.relay != nil {
		// A relay that waits for the user to poll does not see the end. Its socket leaves the set
		// when the relay closes it.
		l.withTCP(func(fd int) { err = control(w.fd, unix.EPOLL_CTL_ADD, fd, end, l.slot) })
	}
	return err
}

func (w *watcher) remove(l *lane) { _ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, l.fd, nil) }

// arm asks for one event when one of the other sets has something. again: the sets are there from
// the last time.
func (w *watcher) arm(again bool) error {
	op := unix.EPOLL_CTL_ADD
	if again {
		op = unix.EPOLL_CTL_MOD
	}
	for _, s := range w.sets() {
		if err := control(w.fd, op, s.fd, unix.EPOLLIN|unix.EPOLLONESHOT, s.slot); err != nil {
			return fmt.Errorf("tcp: arm: %w", err)
		}
	}
	return nil
}

// disarm takes the other sets out.
func (w *watcher) disarm() {
	for _, s := range w.sets() {
		_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
	}
}

type set struct {
	fd   int
	slot int32
}

func (w *watcher) sets() [2]set { return [2]set{{w.q.in, slotIn}, {w.q.out, slotOut}} }

// close ends the goroutine.
func (w *watcher) close() { _ = w.file.Close() }

// run is the goroutine of the queue.
func (w *watcher) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := w.raw.Read(func(fd uintptr) bool {
			n, _ = epollReady(int(fd), events)
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for i := range events[:n] {
			if events[i].Fd < 0 {
				w.q.notify()
			} else {
				w.q.ending(&events[i])
			}
		}
	}
}

// ending begins to look after a lane whose connection has ended.
func (q *queue) ending(ev *unix.EpollEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.laneOf(ev); l != nil {
		q.endingLocked(l, ev.Events&unix.EPOLLERR != 0)
	}
}

func (q *queue) endingLocked(l *lane, reset bool) {
	polls, deadline := q.polls, time.Now()
	if !reset {
		deadline = deadline.Add(patience)
	}
	l.in.over = true
	q.checkEndLater(l, polls, deadline)
}

func (q *queue) checkEndLater(l *lane, polls uint64, deadline time.Time) {
	time.AfterFunc(grace, func() { q.checkEnd(l, polls, deadline) })
}

// checkEnd breaks the endpoint of an ended connection, unless somebody polls and will find the end,
// or might still poll what the peer sent before. After the deadline the user is told in any case.
func (q *queue) checkEnd(l *lane, polls uint64, deadline time.Time) {
	q.mu.Lock()
	if q.closed || q.slots[l.slot] != l || l.e.dead.Load() {
		q.mu.Unlock()
		return
	}
	if l.e.rails != nil && l.e.othersGoOn() {
		q.checkRail(l, polls, deadline)
		return
	}
	unread := l.e.unread()
	if (unread || q.polls != polls) && time.Now().Before(deadline) {
		q.checkEndLater(l, q.polls, deadline)
		q.mu.Unlock()
		return
	}
	if unread && !l.in.eof {
		q.report(l.e, l.e.lost(l, errPeerEnded)) // what is there can still be polled; the end comes after it
		return
	}
	q.report(l.e, l.atEnd(l.endErrno()))
}

// endErrno is how the stream ended: as a read has found, or as the kernel tells. The queue's mu is held.
func (l *lane) endErrno() syscall.Errno {
	if l.in.eof {
		return l.in.errno
	}
	n, _ := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return syscall.Errno(n)
}

// unread tells whether something but a farewell is there to be polled. The queue's mu is held.
func (e *endpoint) unread() bool {
	for _, l := range e.lanes {
		if l.in.r < l.in.w {
			return true
		}
		n, _ := unix.IoctlGetInt(l.fd, unix.TIOCINQ)
		if l.relay != nil && !l.relay.ended.Load() {
			return true // it may be about to bring something
		}
		if n == headerLen && l.in.state == inHeader && l.peekBye() {
			e.rx.bye = true
			continue
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// peekBye tells whether a farewell is next.
func (l *lane) peekBye() bool {
	var b [headerLen]byte
	n, _, err := unix.Recvfrom(l.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	var h header
	return err == nil && n == headerLen && h.parse(b[:]) == nil && h.kind == frameBye
}

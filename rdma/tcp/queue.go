//go:build linux

package tcp

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

const (
	// directMax is up to how many sockets are all read by every Poll. With more, those that lately
	// had something are, and epoll tells about the others.
	directMax = 2
	// hotMax is how many sockets are read directly when there are more than directMax.
	hotMax = 2
	// coldAfter is after how many reads in a row that found nothing a socket is cold: a hot one is left to epoll.
	coldAfter = 64
	// spinAfter is after how many polls without Arm a queue is taken to be polled, not slept on.
	spinAfter = 64
	// epollEvery is how often, while hot sockets have something, epoll is asked about the others; and a cold one
	// of two is read.
	epollEvery = 8
)

// queue is a completion queue and the engine of its endpoints. It holds no completions: finished
// writes stay in their endpoint's ring, and arrivals in the socket, until they are polled, so
// that no queue can overflow.
//
// Three epoll sets watch each socket. in: input is there; out: a full socket takes more (edge);
// watch: the connection ends (edge), and, once after Arm, that one of the other two sets has something. Only watch is in
// the runtime's poller, so that input wakes no thread unless the queue is armed.
type queue struct {
	dev   *device
	ring  func()
	armed atomic.Bool

	harvests atomic.Int32 // endpoints with finished writes
	blocked  atomic.Int32 // lanes with a full socket

	mu        sync.Mutex
	closed    bool
	lanes     []*lane
	slots     []*lane // by the number that epoll events carry; nil: gone
	again     []*lane // have more than the last Poll took
	visited   []*lane // what was again in the last Poll; kept for its memory
	turn      int     // of the lanes that are read directly
	polls     uint64
	skipped   bool // the last Poll only harvested
	idle      int  // polls since the last Arm
	listening bool // as an armed queue
	hot       []*lane
	attended  []*endpoint // see Attend
	ended     []ending    // to be told when mu is free
	upset     []upset     // what has happened to rails
	in        int
	out       int
	events    [64]unix.EpollEvent
	watch     *watcher

	sleep    slumber
	sleeping sync.Mutex // held while a thread sleeps in the in set
}

// ending is an endpoint that broke, with why.
type ending struct {
	e     *endpoint
	cause error
}

func newQueue(d *device, ring func()) (*queue, error) {
	q := &queue{dev: d, ring: ring, in: -1, out: -1}
	for _, fd := range []*int{&q.in, &q.out} {
		var err error
		if *fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			q.closeSets()
			return nil, fmt.Errorf("tcp: completion queue: %w", err)
		}
	}
	w, err := newWatcher(q)
	if err != nil {
		q.closeSets()
		return nil, fmt.Errorf("tcp: completion queue: %w", err)
	}
	q.watch = w
	return q, nil
}

func (q *queue) closeSets() {
	for _, fd := range []*int{&q.in, &q.out} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// addLocked has the queue serve an endpoint's lanes.
func (q *queue) addLocked(lanes []*lane) error {
	if q.closed {
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	for i, l := range lanes {
		l.slot = int32(len(q.slots))
		q.slots = append(q.slots, l)
		if err := q.watch.add(l); err != nil {
			q.removeLocked(lanes[:i+1])
			return fmt.Errorf("epoll: %w", err)
		}
		q.lanes = append(q.lanes, l)
	}
	if q.listening || q.sleep.on || len(q.lanes) > directMax {
		if err := q.listenLocked(q.lanes); err != nil {
			q.removeLocked(lanes)
			return err
		}
	}
	return nil
}

// listenLocked has the in set tell about lanes.
func (q *queue) listenLocked(lanes []*lane) error {
	for _, l := range lanes {
		if l.in.listed || l.in.eof || l.e.dead.Load() {
			continue
		}
		if err := control(q.in, unix.EPOLL_CTL_ADD, l.fd, unix.EPOLLIN, l.slot); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		l.in.listed = true
	}
	return nil
}

// spinLocked gives up what an armed queue needs and a polled one only pays for: each wakes a chain
// of epoll sets for each packet that comes.
func (q *queue) spinLocked() {
	if q.listening {
		q.watch.disarm()
	}
	q.listening, q.sleep.on = false, false
	if q.sleep.nested {
		_ = unix.EpollCtl(q.in, unix.EPOLL_CTL_DEL, q.out, nil)
		q.sleep.nested = false
	}
	if len(q.lanes) <= directMax {
		for _, l := range q.lanes {
			if l.in.listed {
				q.stopReading(l)
				l.in.listed = false
			}
		}
	}
}

// laneOf returns the lane that an event is about; nil if it is about another set, or its lane is gone.
func (q *queue) laneOf(ev *unix.EpollEvent) *lane {
	if ev.Fd < 0 {
		return nil
	}
	return q.slots[ev.Fd]
}

// control is epoll_ctl with a number to be returned in events.
func control(epfd, op, fd int, events uint32, slot int32) error {
	return unix.EpollCtl(epfd, op, fd, &unix.EpollEvent{Events: events, Fd: slot})
}

// removeLocked forgets lanes. Closing their descriptors takes them out of the sets, except where the
// process was forked; so they are taken out here.
func (q *queue) removeLocked(lanes []*lane) {
	for _, l := range lanes {
		if q.slots[l.slot] == l {
			q.slots[l.slot] = nil
		}
		q.lanes = without(q.lanes, l)
		q.hot = without(q.hot, l)
		q.again = without(q.again, l)
		if l.out.listed {
			_ = unix.EpollCtl(q.out, unix.EPOLL_CTL_DEL, l.fd, nil)
		}
	}
	q.unwatch(lanes)
}

// unwatch stops events about lanes whose endpoint is broken. The out set keeps them, for a last frame.
func (q *queue) unwatch(lanes []*lane) {
	for _, l := range lanes {
		q.stopReading(l)
		q.watch.remove(l)
	}
}

// stopReading stops events about input on a lane that has no more.
func (q *queue) stopReading(l *lane) { _ = unix.EpollCtl(q.in, unix.EPOLL_CTL_DEL, l.fd, nil) }

func without(ls []*lane, l *lane) []*lane {
	return slices.DeleteFunc(ls, func(o *lane) bool { return o == l })
}

// Poll sends what waits, harvests finished writes, and then reads what has arrived.
func (q *queue) Poll(cs []rdma.Completion) (int, error) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return 0, fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	q.polls++
	if q.idle++; (q.listening || q.sleep.on) && q.idle > spinAfter && !q.armed.Load() {
		q.spinLocked()
	}
	n := 0
	if q.harvests.Load() > 0 {
		n = q.harvestLocked(cs)
	}
	if n > 0 && !q.skipped {
		// The caller has something to do and will poll again: the next Poll asks the kernel.
		q.skipped = true
		q.attended = q.attended[:0]
		q.mu.Unlock()
		return n, nil
	}
	q.skipped = false
	n += q.readLocked(cs[n:])
	q.sendLocked()
	if n < len(cs) && q.harvests.Load() > 0 {
		n += q.harvestLocked(cs[n:])
	}
	ended := q.ended
	q.ended = nil
	q.mu.Unlock()
	for _, x := range ended {
		x.e.tell(x.cause)
	}
	return n, nil
}

// harvestLocked collects finished writes.
func (q *queue) harvestLocked(cs []rdma.Completion) int {
	n := 0
	for _, l := range q.lanes {
		if t := &l.e.tx; l.lead && t.harvest.Load() {
			t.mu.Lock()
			n += t.harvestLocked(cs[n:])
			t.settleLocked()
			t.mu.Unlock()
		}
	}
	return n
}

// sendLocked goes on sending where sockets take more.
func (q *queue) sendLocked() {
	if len(q.upset) > 0 {
		q.mendLocked()
	}
	if q.blocked.Load() > 0 {
		q.unblockLocked()
	}
	for _, l := range q.lanes {
		if t := &l.e.tx; l.lead && t.wants.Load() {
			t.mu.Lock()
			t.pumpLocked()
			t.settleLocked()
			if l.e.rails != nil {
				q.stuckLocked(l.e)
			}
			stuck := t.stuck
			if t.err != nil {
				stuck = 0
			}
			if t.err != nil && !l.e.told.Load() {
				q.ended = append(q.ended, ending{l.e, t.err}) // perhaps only now: a write that waited was refused
			}
			t.mu.Unlock()
			switch {
			case stuck == 0:
			case !l.out.noted: // the peer may have said why before: the next Poll reads it first
				l.out.noted = true
				for _, l := range l.e.lanes {
					q.revisitLocked(l)
				}
			case !l.in.again:
				q.ended = append(q.ended, ending{l.e, l.e.fail(l.e.lost(l, stuck))})
			}
		}
	}
	if len(q.upset) > 0 {
		q.mendLocked()
	}
}

// unblockLocked asks which full sockets take more.
func (q *queue) unblockLocked() {
	n, _ := epollReady(q.out, q.events[:])
	for i := range q.events[:n] {
		l := q.laneOf(&q.events[i])
		if l == nil {
			continue
		}
		t := &l.e.tx
		t.mu.Lock()
		t.blockLocked(l, false)
		t.rest = true
		t.mu.Unlock()
	}
}

// readLocked lands what has arrived.
func (q *queue) readLocked(cs []rdma.Completion) int {
	if len(cs) == 0 {
		return 0
	}
	n := 0
	if len(q.again) > 0 {
		again := q.again
		q.again, q.visited = q.visited[:0], again
		for _, l := range again {
			l.in.again = false
		}
		for _, l := range again {
			n += q.visitLocked(l, cs[n:])
		}
	}
	if q.sleep.woken > 0 {
		q.attended = q.attended[:0]
		return n + q.visitWokenLocked(cs[n:])
	}
	direct := q.hot
	switch attended := len(q.attended); {
	case len(q.lanes) <= directMax:
		direct = q.lanes
	case attended > 0 && attended <= hotMax:
		return n + q.attendLocked(cs[n:])
	case attended > 0 || q.sleep.on:
		q.attended = q.attended[:0]
		return n + q.lookLocked(cs[n:])
	}
	q.turn++
	for i := range direct {
		l := direct[(q.turn+i)%len(direct)]
		if other := direct[(q.turn+i+1)%len(direct)]; l.in.idle >= coldAfter && other.in.idle < epollEvery && q.turn%epollEvery != 0 {
			continue // all comes over the other one
		}
		n += q.visitLocked(l, cs[n:])
	}
	if len(q.lanes) <= directMax || n == len(cs) || (n > 0 && q.turn%epollEvery != 0) {
		return n
	}
	q.coolLocked()
	k, _ := epollReady(q.in, q.events[:])
	for i := range q.events[:k] {
		l := q.laneOf(&q.events[i])
		if l == nil || l.in.hot {
			continue
		}
		n += q.visitLocked(l, cs[n:])
		q.heatLocked(l)
	}
	return n
}

// visitLocked receives on one lane.
func (q *queue) visitLocked(l *lane, cs []rdma.Completion) int {
	if l.in.again || l.in.eof || l.e.dead.Load() {
		return 0
	}
	n, end, cause := l.receive(cs)
	switch {
	case cause != nil:
		q.ended = append(q.ended, ending{l.e, cause})
	case end == full:
		q.revisitLocked(l)
	}
	if n > 0 || end == more {
		l.in.idle = 0
	} else {
		l.in.idle++
	}
	return n
}

// revisitLocked has the next Poll receive on a lane, whatever epoll says: its buffer may hold frames.
func (q *queue) revisitLocked(l *lane) {
	if !l.in.again {
		l.in.again = true
		q.again = append(q.again, l)
	}
}

// heatLocked has the lane read directly from now on, instead of the one that has been so longest.
func (q *queue) heatLocked(l *lane) {
	if len(q.hot) == hotMax {
		q.hot[0].in.hot = false
		q.hot = append(q.hot[:0], q.hot[1:]...)
	}
	l.in.hot, l.in.idle = true, 0
	q.hot = append(q.hot, l)
}

// coolLocked leaves those hot lanes to epoll that have had nothing for a while.
func (q *queue) coolLocked() {
	keep := q.hot[:0]
	for _, l := range q.hot {
		if l.in.hot = l.in.idle < coldAfter; l.in.hot {
			keep = append(keep, l)
		}
	}
	q.hot = keep
}

// Arm has the ring function called when Poll may find something or may make progress.
func (q *queue) Arm() error {
	if q.ring == nil {
		return nil
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	if q.armed.Swap(true) {
		q.mu.Unlock()
		return nil
	}
	// Old edges of the out set would ring at once.
	q.sendLocked()
	q.unblockLocked()
	now := q.busyLocked()
	q.idle = 0
	err := q.listenLocked(q.lanes)
	if err == nil {
		err = q.watch.arm(q.listening)
		q.listening = true
	}
	if err != nil {
		q.armed.Store(false)
	}
	q.mu.Unlock()
	if now {
		q.notify()
	}
	return err
}

// notify calls the ring function if the queue is armed.
func (q *queue) notify() {
	if q.ring != nil && q.armed.Load() && q.armed.Swap(false) {
		q.ring()
	}
}

// Close also closes the endpoints that are still on the queue.
func (q *queue) Close() error {
	d := q.dev
	d.mu.Lock()
	delete(d.queues, q)
	d.mu.Unlock()
	for _, e := range d.snapshot() {
		if e.cq == q {
			_ = e.Close()
		}
	}
	q.shut()
	return nil
}

// shut ends the queue, whose endpoints are closed.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	q.sleeping.Lock()
	q.closeSets()
	q.sleeping.Unlock()
	q.watch.close()
}

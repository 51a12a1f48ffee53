//go:build linux

package shm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/internal/invariant"
	"github.com/gccl/gccl/rdma"
)

// queue is a completion queue. Completions stay in their endpoints' rings until polled, so that a
// peer writes them without a lock; a poll visits the endpoints in turn.
type queue struct {
	dev       *Device
	ring      func()
	endpoints atomic.Pointer[[]*Endpoint] // replaced, never changed; writers hold mu
	next      int                         // where the next poll begins; of the polling goroutine
	polling   atomic.Bool
	armed     atomic.Bool
	closed    atomic.Bool

	// The queue holds a lease of each endpoint in its list. One that was removed is released when
	// nobody reads a list that it may still be in: remove replaces the list, adds to removed, and
	// then looks at readers; a reader signs off, and then looks at left. One of them sees the other.
	readers atomic.Int64
	left    atomic.Int64 // endpoints in removed
	mu      sync.Mutex   // guards the change of endpoints, and removed
	removed []*Endpoint
}

var errQueueClosed = fmt.Errorf("shm: completion queue %w", rdma.ErrClosed)

func (q *queue) add(e *Endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := append(slices.Clone(*q.endpoints.Load()), e)
	e.use.acquire()
	q.endpoints.Store(&list)
}

func (q *queue) remove(e *Endpoint) {
	q.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(*q.endpoints.Load()), func(other *Endpoint) bool { return other == e })
	q.endpoints.Store(&list)
	q.removed = append(q.removed, e)
	q.left.Add(1)
	q.mu.Unlock()
	q.sweep()
}

// read returns the list of endpoints, whose memory stays until done.
func (q *queue) read() []*Endpoint {
	q.readers.Add(1)
	return *q.endpoints.Load()
}

func (q *queue) done() {
	if q.readers.Add(-1) == 0 && q.left.Load() != 0 {
		q.sweep()
	}
}

// sweep releases the removed endpoints if there are no readers; later ones do not find them in the
// list. If there are, the last of them sweeps.
func (q *queue) sweep() {
	q.mu.Lock()
	if q.readers.Load() != 0 { // looked at under mu: nothing is added to removed after the look
		q.mu.Unlock()
		return
	}
	removed := q.removed
	q.removed = nil
	q.left.Store(0)
	q.mu.Unlock()
	for _, e := range removed {
		e.use.release()
	}
}

// Poll implements rdma.CQ.
func (q *queue) Poll(cs []rdma.Completion) (int, error) {
	if q.closed.Load() {
		return 0, errQueueClosed
	}
	if invariant.Enabled {
		invariant.Check(!q.polling.Swap(true), "two goroutines poll one shm completion queue")
		defer q.polling.Store(false)
	}
	list := q.read()
	defer q.done()
	if q.next >= len(list) {
		q.next = 0
	}
	n := 0
	for i := q.next; i < len(list) && n < len(cs); i++ {
		n += list[i].drain(cs[n:])
	}
	for i := 0; i < q.next && n < len(cs); i++ {
		n += list[i].drain(cs[n:])
	}
	if n == len(cs) {
		q.next++ // some endpoint may have more: begin with its neighbour
	}
	return n, nil
}

// ready tells whether a poll would find something.
func (q *queue) ready() bool {
	defer q.done()
	return slices.ContainsFunc(q.read(), (*Endpoint).ready)
}

// Arm implements rdma.CQ. A peer in another process cannot call a function here, so a goroutine
// watches an armed queue asleep on the device's bell; it ends when it has called the ring function.
// A rank that sleeps itself does better to use the device's Bell.
func (q *queue) Arm() error {
	if q.closed.Load() {
		return errQueueClosed
	}
	if q.ring == nil || q.armed.Swap(true) {
		return nil
	}
	go q.watch()
	return nil
}

func (q *queue) watch() {
	b := bell{dev: q.dev}
	for {
		b.Arm()
		if q.closed.Load() || q.ready() {
			break
		}
		b.Sleep(time.Minute) // any length: it only bounds a sleep that nobody will end
	}
	b.Disarm()
	q.armed.Store(false) // before the call, which may arm again
	if !q.closed.Load() {
		q.ring()
	}
}

// Close implements rdma.CQ. Completions that were not polled are dropped.
func (q *queue) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	q.dev.mu.Lock()
	delete(q.dev.queues, q)
	q.dev.mu.Unlock()
	q.dev.ring()
	return nil
}

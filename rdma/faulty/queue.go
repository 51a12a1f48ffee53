package faulty

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/rdma"
)

// queue is a completion queue that hands on what the inner one has, with the users' own IDs, and
// adds the completions of writes that failed before they reached the inner endpoint.
//
// mu guards the queue and all that its endpoints post. No user's function runs under it.
type queue struct {
	dev    *device
	number int
	inner  rdma.CQ
	ring   func()
	armed  atomic.Bool

	calls callbacks

	mu        sync.Mutex
	endpoints map[uint32]*endpoint // by ID
	ready     []rdma.Completion    // to be polled
	polls     uint64
	hid       bool // the last Poll was hidden
	scratch   [32]rdma.Completion
}

// callbacks are calls of users' functions that came up while the queue was locked: the inner device
// may ring, or report a loss, inside any call to it.
type callbacks struct {
	mu     sync.Mutex
	locked bool
	later  []func()
}

func (q *queue) lock() {
	q.mu.Lock()
	q.calls.mu.Lock()
	q.calls.locked = true
	q.calls.mu.Unlock()
}

// unlock makes the calls that came up since lock.
func (q *queue) unlock() {
	q.calls.mu.Lock()
	q.calls.locked = false
	later := q.calls.later
	q.calls.later = nil
	q.calls.mu.Unlock()
	q.mu.Unlock()
	for _, f := range later {
		f()
	}
}

// call runs f now, or as soon as the queue is unlocked.
func (q *queue) call(f func()) {
	q.calls.mu.Lock()
	if q.calls.locked {
		q.calls.later = append(q.calls.later, f)
		q.calls.mu.Unlock()
		return
	}
	q.calls.mu.Unlock()
	f()
}

// fire calls the ring function if the queue is armed.
func (q *queue) fire() {
	if q.armed.Swap(false) && q.ring != nil {
		q.call(q.ring)
	}
}

func (q *queue) Poll(cs []rdma.Completion) (int, error) {
	q.lock()
	defer q.unlock()
	if err := q.dev.failure(); err != nil {
		return 0, err
	}
	q.polls++
	p := &q.dev.plan
	if q.hid = !q.hid && p.HiddenPolls > 0 && p.chance(streamPoll, q.number, q.polls) < p.HiddenPolls; q.hid {
		return 0, nil
	}
	if err := q.collectLocked(len(cs)); err != nil && len(q.ready) == 0 {
		return 0, err
	}
	n := copy(cs, q.ready)
	q.ready = q.ready[:copy(q.ready, q.ready[n:])]
	return n, nil
}

// collectLocked has the endpoints post what is due, and fills ready up to n from the inner queue.
func (q *queue) collectLocked(n int) error {
	now := time.Now()
	for _, e := range q.endpoints {
		e.pumpLocked(now)
	}
	var err error
	for len(q.ready) < n && err == nil {
		var k int
		k, err = q.inner.Poll(q.scratch[:min(len(q.scratch), n-len(q.ready))])
		if k == 0 {
			break
		}
		for _, c := range q.scratch[:k] {
			if e := q.endpoints[c.Endpoint]; e != nil && c.Kind == rdma.Wrote {
				var known bool
				if c.ID, known = e.completeLocked(c); !known {
					continue
				}
			}
			q.ready = append(q.ready, c)
		}
	}
	for _, e := range q.endpoints {
		e.settleLocked()
	}
	return err
}

func (q *queue) Arm() error {
	if err := q.dev.failure(); err != nil {
		return err
	}
	q.armed.Store(true)
	q.lock()
	now := len(q.ready) > 0
	for _, e := range q.endpoints {
		now = now || e.failedLocked()
	}
	q.unlock()
	if now || q.dev.failure() != nil {
		q.fire()
		return nil
	}
	return q.inner.Arm()
}

func (q *queue) Close() error {
	q.lock()
	q.ready = nil
	q.unlock()
	q.armed.Store(false)
	return q.inner.Close()
}

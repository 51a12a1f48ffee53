package loopback

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
)

// entry is a completion with what polling it gives back: the endpoint's places in its send queue.
type entry struct {
	rdma.Completion
	from   *endpoint
	places int // Wrote: places freed, its own and those of the unsignaled writes before it
}

// queue is a completion queue.
type queue struct {
	dev      *Device
	depth    int
	ringFunc func()

	empty atomic.Bool // nothing to poll and no error: for a Poll that finds nothing

	mu      sync.Mutex
	entries []entry // oldest first, in a circle
	head    int
	count   int
	armed   bool
	err     error // sticky: overrun or closed
}

// push adds a completion and tells whether the caller must call ring, which it does without locks.
func (q *queue) push(en entry) (mustRing bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return false
	}
	if q.count >= q.depth && en.Err == nil {
		q.err = fmt.Errorf("loopback: %v: completion queue overrun: more than %d completions unpolled", q.dev, q.depth)
		q.empty.Store(false)
		mustRing, q.armed = q.armed, false
		return mustRing
	}
	if q.count == len(q.entries) {
		q.growLocked()
	}
	q.entries[(q.head+q.count)%len(q.entries)] = en
	q.count++
	q.empty.Store(false)
	mustRing, q.armed = q.armed, false
	return mustRing
}

func (q *queue) growLocked() {
	bigger := make([]entry, max(16, 2*len(q.entries)))
	n := copy(bigger, q.entries[q.head:])
	copy(bigger[n:], q.entries[:q.head])
	q.entries, q.head = bigger, 0
}

func (q *queue) ring() {
	if q.ringFunc != nil {
		q.ringFunc()
	}
}

// Poll costs one load if there is nothing. Polling a completion frees its place in the send queue,
// or makes room for one more write with immediate.
func (q *queue) Poll(cs []rdma.Completion) (int, error) {
	if q.empty.Load() {
		return 0, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == 0 {
		return 0, q.err
	}
	n := min(len(cs), q.count)
	for i := range n {
		en := &q.entries[q.head]
		cs[i] = en.Completion
		switch en.Kind {
		case rdma.Wrote:
			en.from.retired.Add(int64(en.places))
		case rdma.Received:
			en.from.unpolled.Add(-1)
		}
		*en = entry{}
		q.head = (q.head + 1) % len(q.entries)
	}
	q.count -= n
	q.empty.Store(q.count == 0 && q.err == nil)
	return n, nil
}

// Arm has the ring function called once: now if something is there to poll, an error included.
func (q *queue) Arm() error {
	q.mu.Lock()
	if q.err != nil && q.count == 0 {
		defer q.mu.Unlock()
		return q.err
	}
	now := q.count > 0
	q.armed = !now
	q.mu.Unlock()
	if now {
		q.ring()
	}
	return nil
}

// Close closes the queue and the endpoints that are still on it.
func (q *queue) Close() error {
	d := q.dev
	d.mu.Lock()
	delete(d.queues, q)
	var users []*endpoint
	for e := range d.endpoints {
		if e.cq == q {
			users = append(users, e)
		}
	}
	d.mu.Unlock()
	for _, e := range users {
		_ = e.Close()
	}
	q.shut()
	return nil
}

func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.entries, q.head, q.count, q.armed = nil, 0, 0, false
	q.empty.Store(false)
	q.err = fmt.Errorf("%w: completion queue", rdma.ErrClosed)
}

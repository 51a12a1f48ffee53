package verbs

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// railsQueue is a completion queue of each port, for bundles.
type railsQueue struct {
	dev     *Rails
	queues  []*queue // by port
	ring    func()
	armed   atomic.Bool
	scratch [pollBatch]rdma.Completion
	fds     []unix.PollFd

	more  atomic.Bool // again is not empty
	mu    sync.Mutex
	again []*bundle // have completions that no poll has asked for yet, or may
}

var _ rdma.Waiter = (*railsQueue)(nil)

// NewCQ makes a queue on every port.
func (r *Rails) NewCQ(depth int, ring func()) (rdma.CQ, error) {
	q := &railsQueue{dev: r, ring: ring}
	var rung func()
	if ring != nil {
		rung = q.ringOnce
	}
	for _, d := range r.ports {
		x, err := d.NewCQ(depth, rung)
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		sub := x.(*queue)
		q.queues, q.fds = append(q.queues, sub), append(q.fds, sub.sleep[0])
	}
	return q, nil
}

func (q *railsQueue) ringOnce() {
	if q.armed.CompareAndSwap(true, false) && q.ring != nil {
		q.ring()
	}
}

// revisit has the next Poll look at b, and wakes who sleeps until there is something to poll.
func (q *railsQueue) revisit(b *bundle) {
	q.mu.Lock()
	if !slices.Contains(q.again, b) {
		q.again = append(q.again, b)
	}
	q.more.Store(true)
	q.mu.Unlock()
}

// Poll takes the ports' completions to the bundles, and completions from them.
func (q *railsQueue) Poll(cs []rdma.Completion) (int, error) {
	if len(cs) == 0 {
		return 0, nil
	}
	n := 0
	if q.more.Load() {
		q.mu.Lock()
		again := q.again
		q.again = nil
		q.more.Store(false)
		q.mu.Unlock()
		for _, b := range again {
			n += q.harvest(b, cs[n:])
		}
	}
	for i, sub := range q.queues {
		for n < len(cs) {
			got, err := sub.Poll(q.scratch[:min(len(q.scratch), len(cs)-n)])
			if err != nil && n == 0 {
				return 0, err
			}
			if got == 0 || err != nil {
				break
			}
			for k := range q.scratch[:got] {
				c := &q.scratch[k]
				e := q.dev.ports[i].table.lookup(c.Endpoint)
				if e == nil || e.bundle == nil {
					continue
				}
				e.bundle.take(e.rail, c)
				n += q.harvest(e.bundle, cs[n:])
			}
		}
	}
	return n, nil
}

func (q *railsQueue) harvest(b *bundle, cs []rdma.Completion) int {
	n := b.harvest(cs)
	if n == len(cs) { // there may be more
		q.revisit(b)
	}
	return n
}

// Arm arms the ports' queues. After an error it has not: those that are rings nobody.
func (q *railsQueue) Arm() error {
	if q.ring == nil || !q.armed.CompareAndSwap(false, true) {
		return nil
	}
	if q.more.Load() {
		q.ringOnce()
		return nil
	}
	for _, sub := range q.queues {
		if err := sub.Arm(); err != nil {
			q.armed.Store(false)
			return err
		}
	}
	if q.more.Load() { // since the first look
		q.ringOnce()
	}
	return nil
}

// Wait sleeps on the completion channels of all ports.
func (q *railsQueue) Wait(d time.Duration) error {
	if q.more.Load() {
		return nil
	}
	for _, sub := range q.queues {
		if !sub.guard.enter() {
			return fmt.Errorf("verbs: %w: completion queue", rdma.ErrClosed)
		}
		defer sub.guard.leave()
		if work, err := sub.toSleep(); work || err != nil {
			return err
		}
	}
	_, err := ppoll(q.fds, d)
	switch {
	case err == unix.EINTR:
		return nil
	case err != nil:
		return fmt.Errorf("verbs: %v: wait for completions: %w", q.dev, err)
	}
	for i, sub := range q.queues {
		if q.fds[i].Revents != 0 {
			sub.woken()
		}
	}
	return nil
}

// Close closes the bundles that are still on it, and the ports' queues.
func (q *railsQueue) Close() error {
	q.dev.mu.Lock()
	var mine []*bundle
	for b := range q.dev.bundles {
		if b.cq == q {
			mine = append(mine, b)
		}
	}
	q.dev.mu.Unlock()
	for _, b := range mine {
		_ = b.Close()
	}
	var errs []error
	for _, sub := range q.queues {
		errs = append(errs, sub.Close())
	}
	return errors.Join(errs...)
}

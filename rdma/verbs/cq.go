package verbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// pollBatch is how many completions one call of ibv_poll_cq takes: a call by purego costs 80 ns more
// than C's, which 16 completions share.
const pollBatch = 16

// queue is a completion queue. Poll and Arm are for one goroutine at a time.
type queue struct {
	dev   *Device
	cq    *ibv.CQ
	guard *guard
	err   atomic.Pointer[error] // sticky

	next, have int // cq.WC[next:have] are polled and not handed out

	room deepener

	ch    *ibv.Channel
	asked bool // for an event, which has not been taken yet
	sleep [1]unix.PollFd

	ring   func()
	armed  atomic.Bool
	listen sync.Mutex // guards what follows
	file   *os.File   // a duplicate of the channel's descriptor, in Go's poller, since the first Arm
	waiter sync.WaitGroup
	down   bool
}

var _ rdma.Waiter = (*queue)(nil)

// NewCQ makes a queue. It is deepened as endpoints are added, so that a failing endpoint, whose every
// posted request completes, cannot overrun it; depth is where it begins.
func (d *Device) NewCQ(depth int, ring func()) (rdma.CQ, error) {
	if depth <= 0 {
		return nil, fmt.Errorf("verbs: completion queue of depth %d", depth)
	}
	if depth > int(d.limits.MaxCQE) {
		return nil, fmt.Errorf("verbs: completion queue of depth %d: %v has at most %d", depth, d, d.limits.MaxCQE)
	}
	q := &queue{dev: d, ring: ring}
	q.guard = newGuard(q.destroy)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.closedError()
	}
	var err error
	if q.ch, err = d.ctx.NewChannel(); err != nil {
		return nil, explain(err, 0)
	}
	if q.cq, err = d.ctx.NewCQ(depth, pollBatch, q.ch); err != nil {
		_ = q.ch.Destroy()
		return nil, explain(err, depth*64)
	}
	q.sleep[0] = unix.PollFd{Fd: int32(q.ch.FD), Events: unix.POLLIN}
	q.room = deepener{cq: q.cq, limit: int(d.limits.MaxCQE)}
	d.queues[q] = struct{}{}
	return q, nil
}

// fail makes Poll return err from now on.
func (q *queue) fail(err error) {
	q.err.CompareAndSwap(nil, &err)
	q.ringOnce()
}

// Poll takes completions. It also posts the receives again that they used up.
func (q *queue) Poll(cs []rdma.Completion) (int, error) {
	if !q.guard.enter() {
		return 0, fmt.Errorf("verbs: %w: completion queue", rdma.ErrClosed)
	}
	n, err := q.poll(cs)
	q.guard.leave()
	return n, err
}

// poll asks the library once, and again only while it gives all that was asked for.
func (q *queue) poll(cs []rdma.Completion) (n int, err error) {
	for more := true; ; {
		for ; q.next < q.have && n < len(cs); q.next++ {
			if q.take(&q.cq.WC[q.next], &cs[n]) {
				n++
			}
		}
		if n == len(cs) || !more {
			return n, nil
		}
		want := min(len(cs)-n, pollBatch)
		if err = q.refill(want); q.have == 0 {
			if n > 0 {
				err = nil // it comes again
			}
			return n, err
		}
		more = q.have == want
	}
}

// refill polls when everything polled before is handed out.
func (q *queue) refill(want int) error {
	got, err := q.cq.Poll(want)
	if got == 0 && err == nil {
		if p := q.err.Load(); p != nil {
			err = *p
		}
	}
	q.next, q.have = 0, got
	return err
}

// take turns one work completion into c; false if the user is not to see it.
func (q *queue) take(wc *ibv.WC, c *rdma.Completion) bool {
	id, kind := unpackID(wc.ID)
	e := q.dev.table.lookup(id)
	switch {
	case e == nil: // closed meanwhile
		return false
	case kind == kindWrite:
		return e.wrote(wc, c)
	case wc.Status != ibv.Success:
		e.receiveFailed(wc.Status)
		return false
	}
	*c = rdma.Completion{Kind: rdma.Received, Endpoint: id, Imm: ibv.NetworkOrder(wc.Imm), Len: int(wc.ByteLen)}
	e.received()
	return true
}

// Close closes the queue and the endpoints that are still on it.
func (q *queue) Close() error {
	for _, e := range q.dev.table.all() {
		if e.cq == q {
			_ = e.Close()
		}
	}
	q.dev.mu.Lock()
	delete(q.dev.queues, q)
	q.dev.mu.Unlock()
	q.shut()
	return nil
}

// shut lets the queue be destroyed once nobody polls it and its endpoints are gone, each of which
// holds the guard.
func (q *queue) shut() {
	q.listen.Lock()
	q.down = true
	if q.file != nil {
		_ = q.file.Close()
	}
	q.listen.Unlock()
	q.waiter.Wait()
	q.guard.close()
}

func (q *queue) destroy() {
	if err := q.cq.Destroy(); err != nil {
		q.dev.opts.Logger.Sugar().Errorf("verbs: %v: completion queue: %v", q.dev, err)
	}
	_ = q.ch.Destroy()
}

// deepener keeps a queue deep enough for everything that may complete into it at once.
type deepener struct {
	mu    sync.Mutex
	cq    *ibv.CQ
	limit int
	load  int
}

// reserve makes room for n more completions.
func (r *deepener) reserve(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if need := r.load + n; need > r.cq.Depth() {
		if need > r.limit {
			return fmt.Errorf("completion queue would need a depth of %d, the device has at most %d: use several queues", need, r.limit)
		}
		if err := r.cq.Resize(min(max(need, 2*r.cq.Depth()), r.limit)); err != nil {
			if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
				return fmt.Errorf("completion queue of depth %d cannot be deepened to %d on this device: make it that deep: %w", r.cq.Depth(), need, err)
			}
			return explain(err, need*64)
		}
	}
	r.load += n
	return nil
}

func (r *deepener) release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load -= n
}

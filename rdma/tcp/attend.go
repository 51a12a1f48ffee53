//go:build linux

package tcp

import (
	"slices"

	"github.com/gccl/gccl/rdma"
)

var _ rdma.Attentive = (*queue)(nil)

// Attend has the next Poll read the endpoint's sockets and, most times, no others. A user who waits for one or
// two endpoints of several so pays one system call for a look that finds nothing, and none to find out where
// something is. With more, epoll is cheaper.
func (q *queue) Attend(ep rdma.Endpoint) {
	e, ok := ep.(*endpoint)
	if !ok || e.cq != q {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.attended) <= hotMax && !slices.Contains(q.attended, e) {
		q.attended = append(q.attended, e)
	}
}

// attendLocked receives from the endpoints that the user waits for, and from all now and then.
func (q *queue) attendLocked(cs []rdma.Completion) (n int) {
	for _, e := range q.attended {
		for _, l := range e.lanes {
			n += q.visitLocked(l, cs[n:])
		}
	}
	q.attended = q.attended[:0]
	if q.turn++; q.turn%epollEvery == 0 && n < len(cs) {
		n += q.lookLocked(cs[n:])
	}
	return n
}

// lookLocked receives wherever epoll says that there is something.
func (q *queue) lookLocked(cs []rdma.Completion) (n int) {
	k, _ := epollReady(q.in, q.events[:])
	for i := range q.events[:k] {
		if l := q.laneOf(&q.events[i]); l != nil {
			n += q.visitLocked(l, cs[n:])
		}
	}
	return n
}

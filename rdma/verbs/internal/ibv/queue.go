package ibv

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma/verbs/internal/ccall"
)

// CQ is a completion queue.
type CQ struct {
	c     *Context
	h     uintptr
	arena *Arena
	WC    []WC // what Poll has filled in
	poll  ccall.List
	arm   ccall.List
}

// NewCQ makes a queue of at least depth entries that is polled in batches of up to batch. ch may be nil.
func (c *Context) NewCQ(depth, batch int, ch *Channel) (*CQ, error) {
	a, err := NewArena(Bytes[WC](batch))
	if err != nil {
		return nil, err
	}
	var chh uintptr
	if ch != nil {
		chh = ch.h
	}
	h, err := c.lib.pointer("ibv_create_cq", c.lib.createCQ, c.h, uintptr(depth), 0, chh, 0)
	if err != nil {
		a.Free()
		return nil, err
	}
	q := &CQ{c: c, h: h, arena: a, WC: Carve[WC](a, batch)}
	q.poll = ccall.List{Fn: c.pollCQ, Args: [3]uintptr{h, 0, Addr(q.WC)}}
	q.arm = ccall.List{Fn: c.reqNotifyCQ, Args: [3]uintptr{h, 0}}
	return q, nil
}

// Depth is how many completions the queue holds.
func (q *CQ) Depth() int { return int(peek[int32](q.h, cqCQE)) }

// Resize makes the queue deeper. It may run beside Poll.
func (q *CQ) Resize(depth int) error {
	return number("ibv_resize_cq", q.c.lib.resizeCQ, q.h, uintptr(depth))
}

// Poll takes up to max completions into WC and returns how many. One goroutine at a time.
func (q *CQ) Poll(max int) (int, error) {
	q.poll.Args[1] = uintptr(min(max, len(q.WC)))
	n := int(q.poll.Call())
	if n < 0 {
		return 0, fmt.Errorf("ibv_poll_cq returned %d", n)
	}
	return n, nil
}

// Arm asks for one event on the channel when the next completion comes.
func (q *CQ) Arm() error {
	if r := q.arm.Call(); r != 0 {
		return fmt.Errorf("ibv_req_notify_cq: %w", unix.Errno(r))
	}
	return nil
}

// Destroy frees the queue; no QP may use it.
func (q *CQ) Destroy() error {
	err := number("ibv_destroy_cq", q.c.lib.destroyCQ, q.h)
	q.arena.Free()
	return err
}

// Handle identifies the queue in asynchronous events.
func (q *CQ) Handle() uintptr { return q.h }

// QP is a reliable connected queue pair. Calls of one Sender or Receiver are for one goroutine at
// a time; Modify likewise; the kinds may run beside each other.
type QP struct {
	c     *Context
	h     uintptr
	Num   uint32
	Cap   QPCap // as granted
	arena *Arena
	attr  []QPAttr
}

// NewQP makes a queue pair; cap is a wish, QP.Cap what was granted.
func (p *PD) NewQP(cq *CQ, cap QPCap) (*QP, error) {
	a, err := NewArena(Bytes[QPAttr](1))
	if err != nil {
		return nil, err
	}
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.init[0] = QPInitAttr{SendCQ: cq.h, RecvCQ: cq.h, Cap: cap, Type: qptRC}
	h, err := c.lib.pointer("ibv_create_qp", c.lib.createQP, p.h, Addr(c.init))
	if err != nil {
		a.Free()
		return nil, err
	}
	return &QP{c: c, h: h, Num: peek[uint32](h, qpNum), Cap: c.init[0].Cap, arena: a, attr: Carve[QPAttr](a, 1)}, nil
}

// Handle identifies the queue pair in asynchronous events.
func (q *QP) Handle() uintptr { return q.h }

// Modify changes the state and the attributes that mask names. On RoCE the step to RTR may wait for
// the neighbour's hardware address.
func (q *QP) Modify(attr QPAttr, mask int) error {
	q.attr[0] = attr
	return number("ibv_modify_qp", q.c.lib.modifyQP, q.h, Addr(q.attr), uintptr(mask))
}

// Destroy frees the queue pair.
func (q *QP) Destroy() error {
	err := number("ibv_destroy_qp", q.c.lib.destroyQP, q.h)
	q.arena.Free()
	return err
}

// Sender is a reusable chain of send requests.
type Sender struct {
	Requests []Request
	wr       []SendWR
	arena    *Arena
	bad      []uintptr
	post     ccall.List
}

// Request is one request of a chain, with what it points to.
type Request struct {
	WR     *SendWR // filled in by the user, except Next and SG
	SG     *SGE    // WR's, if NumSGE is 1
	Inline []byte  // room for bytes, for SendInline
	Addr   uint64  // Inline's
}

// NewSender makes a chain of n requests to q, with room for stride bytes of inline data each.
func (q *QP) NewSender(n, stride int) (*Sender, error) {
	a, err := NewArena(Bytes[SendWR](n) + Bytes[SGE](n) + Bytes[byte](n*stride) + Bytes[uintptr](1))
	if err != nil {
		return nil, err
	}
	s := &Sender{wr: Carve[SendWR](a, n), arena: a, bad: Carve[uintptr](a, 1)}
	sg := Carve[SGE](a, n)
	var room []byte
	if stride > 0 {
		room = Carve[byte](a, n*stride)
	}
	for i := range s.wr {
		s.wr[i].SG = Addr(sg[i:])
		if i+1 < n {
			s.wr[i].Next = Addr(s.wr[i+1:])
		}
		b := room[i*stride:][:stride]
		s.Requests = append(s.Requests, Request{&s.wr[i], &sg[i], b, uint64(Addr(b))})
	}
	s.post = ccall.List{Fn: q.c.postSend, Args: [3]uintptr{q.h, Addr(s.wr), Addr(s.bad)}}
	return s, nil
}

// Post hands over the first n requests in one call, and returns how many were taken. ENOMEM means
// that the queue is full.
func (s *Sender) Post(n int) (int, error) {
	last := s.Requests[n-1].WR
	next := last.Next
	last.Next = 0
	r := s.post.Call()
	last.Next = next
	if r == 0 {
		return n, nil
	}
	taken := int(s.bad[0]-Addr(s.wr)) / Bytes[SendWR](1)
	if taken < 0 || taken > n {
		taken = 0
	}
	return taken, unix.Errno(r)
}

// Free frees the chain.
func (s *Sender) Free() { s.arena.Free() }

// Receiver is a chain of receive requests without memory, for writes with immediate.
type Receiver struct {
	wr    []RecvWR
	arena *Arena
	bad   []uintptr
	post  ccall.List
}

// NewReceiver makes a chain of n receives for q, all with this ID.
func (q *QP) NewReceiver(n int, id uint64) (*Receiver, error) {
	a, err := NewArena(Bytes[RecvWR](n) + Bytes[uintptr](1))
	if err != nil {
		return nil, err
	}
	r := &Receiver{wr: Carve[RecvWR](a, n), arena: a, bad: Carve[uintptr](a, 1)}
	for i := range r.wr {
		r.wr[i].ID = id
		if i+1 < n {
			r.wr[i].Next = Addr(r.wr[i+1:])
		}
	}
	r.post = ccall.List{Fn: q.c.postRecv, Args: [3]uintptr{q.h, Addr(r.wr), Addr(r.bad)}}
	return r, nil
}

// Post posts the whole chain in one call.
func (r *Receiver) Post() error {
	if e := r.post.Call(); e != 0 {
		return fmt.Errorf("ibv_post_recv: %w", unix.Errno(e))
	}
	return nil
}

// Free frees the chain.
func (r *Receiver) Free() { r.arena.Free() }

// NetworkOrder converts an immediate to and from network byte order; verbs machines are little-endian.
func NetworkOrder(x uint32) uint32 { return bits.ReverseBytes32(x) }

//go:build linux

package tcp

import (
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

const (
	// copyMax is up to which length a payload is copied behind its header, so that one plain send
	// takes both. Above it the copy costs more than a gathering send saves (measured on loopback).
	copyMax = 64 << 10
	// tailMax is up to which length a payload is copied behind a long one, to go with it.
	tailMax = 1 << 10
	// pieceMax is the longest payload of a frame. It bounds what must be kept when a
	// connection is broken in the middle of a frame.
	pieceMax = 1 << 20
	// pieceShared is the same if the pieces of a write are shared by sockets or have checksums.
	pieceShared = 256 << 10
	// ackBytes is how much may be on its way before the peer has to tell that it has landed, while signaled
	// writes follow one another.
	ackBytes = 512 << 10
	// pumpBudget bounds what one call of Post or Poll sends for one endpoint.
	pumpBudget = 4 << 20
)

// padding replaces the rest of a payload that the peer drops.
var padding [pieceMax]byte

// posted is a write that was taken by Post and not yet polled.
type posted struct {
	id       uint64
	local    []byte
	key      uint64
	addr     uint64
	imm      uint32
	flags    uint8
	signaled bool
	refused  error // found by Post: the range is outside the description
	err      error // why it failed
	open     int   // frames of it that a lane holds
}

// transmitter is the sending half of an endpoint. The ring's numbers count writes since the
// beginning; a write's number is its seq on the wire.
//
//	head ≤ done ≤ next ≤ tail
//	[head, done) the kernel has taken them; wait to be polled
//	[done, next) lanes hold their last frames
//	[next, tail) wait for a lane; off bytes of next are on their way
type transmitter struct {
	e *endpoint

	mu      sync.Mutex
	closed  bool
	err     error // why the endpoint is broken
	ring    []posted
	inline  []byte // maxInline bytes for each place of the ring; made when needed
	head    uint64
	done    uint64
	next    uint64
	tail    uint64
	off     int
	fail    failCode // to be told to the peer
	failAt  header   // what it refuses
	last    bool     // after what the lanes hold, the stream ends
	unasked int      // bytes of signaled writes since the peer was last asked to tell that they have landed
	stuck   syscall.Errno
	rest    bool // a socket may take more now, and no event would tell

	wants   atomic.Bool // something is there to send
	harvest atomic.Bool // something is there to poll
}

// outLane is what a lane has taken and the kernel has not: stage[sent:], then big, then tail[tailed:].
type outLane struct {
	vec     vectors
	stage   []byte // headers and short payloads
	sent    int
	big     []byte // the payload of the last header in stage, if it is long
	tail    []byte // short frames after it
	tailed  int
	credits []uint64 // writes with a frame in stage
	bigSeq  uint64   // with several sockets: of big,
	round   uint32   // and how often this end has begun again on the lane
	stuck   syscall.Errno
	blocked bool // the socket is full
	listed  bool // in the queue's out set
	noted   bool // Poll has seen that sending fails
}

func (o *outLane) empty() bool {
	return o.sent == len(o.stage) && len(o.big) == 0 && o.tailed == len(o.tail)
}

// drop forgets everything.
func (o *outLane) drop() {
	o.stage, o.sent, o.big, o.tail, o.tailed = o.stage[:0], 0, nil, o.tail[:0], 0
}

func (t *transmitter) at(n uint64) *posted { return &t.ring[n&uint64(len(t.ring)-1)] }

// pumpLocked sends until the sockets are full or the budget is spent.
func (t *transmitter) pumpLocked() {
	lanes := t.e.lanes
	t.rest = false
	for budget, moved := pumpBudget, true; moved && t.stuck == 0; {
		if moved = false; budget <= 0 {
			t.rest = true
			return
		}
		for _, l := range lanes {
			if l.out.blocked || l.out.stuck != 0 || (l.out.empty() && !t.fillLocked(l)) {
				continue
			}
			n, errno := l.out.vec.send(l.fd, l.out.stage[l.out.sent:], l.out.big, l.out.tail[l.out.tailed:])
			switch errno {
			case 0:
				moved = true
				budget -= n
				t.sentLocked(l, n)
			case syscall.EAGAIN:
				t.blockLocked(l, true)
			case syscall.ENOBUFS, syscall.ENOMEM: // for now
				t.rest = true
			default:
				if t.err != nil { // the peer, which was to be told why, takes nothing any more
					t.endLocked()
					return
				}
				// What the peer said before may still be there to read: the receiving half finds the cause.
				if l.out.stuck = errno; t.e.rails != nil {
					continue
				}
				t.stuck = errno
				return
			}
		}
	}
}

func (t *transmitter) blockLocked(l *lane, blocked bool) {
	if l.out.blocked == blocked {
		return
	}
	l.out.blocked = blocked
	if blocked {
		t.e.cq.blocked.Add(1)
		if !l.out.listed {
			l.out.listed = true
			_ = control(t.e.cq.out, unix.EPOLL_CTL_ADD, l.fd, unix.EPOLLOUT|unix.EPOLLET, l.slot)
		}
	} else {
		t.e.cq.blocked.Add(-1)
	}
}

// sentLocked notes that the kernel has taken n bytes of a lane.
func (t *transmitter) sentLocked(l *lane, n int) {
	o := &l.out
	k := min(n, len(o.stage)-o.sent)
	o.sent += k
	n -= k
	k = min(n, len(o.big))
	o.big = o.big[k:]
	o.tailed += n - k
	if !o.empty() {
		return
	}
	o.drop()
	if t.e.rails == nil { // else the peer tells what is done
		for _, n := range o.credits {
			t.at(n).open--
		}
		o.credits = o.credits[:0]
		for t.done < t.next && t.at(t.done).open == 0 {
			t.done++
		}
	}
	if t.last && l.lead {
		t.endLocked()
	}
}

// fillLocked gives an empty lane its next frames. Short writes go by the first lane.
func (t *transmitter) fillLocked(l *lane) bool {
	o := &l.out
	if t.fail != 0 && l.lead {
		h := header{kind: frameFail, imm: uint32(t.fail), key: t.failAt.key, addr: t.failAt.addr, seq: t.failAt.seq}
		o.stage = h.append(o.stage)
		t.fail, t.last = 0, true
		return true
	}
	if t.e.rails != nil && (t.err != nil || !t.e.rails.fillLocked(l)) {
		return !o.empty()
	}
	for t.next < t.tail && t.err == nil {
		p := t.at(t.next)
		if p.refused != nil {
			if !t.aloneLocked() {
				break // the writes before it first
			}
			t.refuseLocked(p)
			return l.lead && t.fillLocked(l)
		}
		n, shared := t.pieceLocked(p)
		if !l.lead && !shared {
			break
		}
		if len(o.big) > 0 && (n > tailMax || len(o.tail) >= tailMax || shared) {
			break
		}
		if n <= copyMax && len(o.stage) > 0 && len(o.stage)+n > copyMax {
			break
		}
		if t.e.rails != nil && t.off == 0 {
			t.askLocked(p)
		}
		t.stageLocked(o, p, n)
		if long := n > copyMax; long && t.off > 0 || !long && shared {
			break
		}
	}
	return !o.empty()
}

// stageLocked gives a lane the next frame, which is the next n bytes of p, the next write.
func (t *transmitter) stageLocked(o *outLane, p *posted, n int) {
	piece := p.local[t.off : t.off+n]
	h := header{
		kind:   frameWrite,
		flags:  p.flags,
		imm:    p.imm,
		key:    p.key,
		addr:   p.addr + uint64(t.off),
		length: uint32(n),
		total:  uint32(len(p.local)),
		seq:    t.next,
	}
	if t.e.dev.opts.Checksum {
		h.flags |= flagChecksum
		h.crc = crc32.Checksum(piece, castagnoli)
	}
	if t.e.rails == nil {
		o.credits = append(o.credits, t.next)
		p.open++
	}
	at := &o.stage
	if len(o.big) > 0 {
		at = &o.tail
	}
	if *at = h.append(*at); n > copyMax {
		o.big, o.bigSeq = piece, h.seq
	} else {
		*at = append(*at, piece...)
	}
	if t.off += n; t.off == len(p.local) {
		t.off = 0
		t.next++
	}
}

// askLocked decides whether the peer has to tell when the next write has landed, which is the same for all its
// frames: whichever lands last is answered. An answer is for all writes before, too, so that the one behind this
// can ask for both, if it asks for anything.
func (t *transmitter) askLocked(p *posted) {
	p.flags &^= flagAck
	if !p.signaled {
		return
	}
	t.unasked += len(p.local)
	next := t.next + 1
	follows := next < t.tail && t.at(next).signaled && t.at(next).refused == nil
	if follows && t.unasked < ackBytes && next%uint64(len(t.ring)/2) != 0 {
		return
	}
	p.flags |= flagAck
	t.unasked = 0
}

// pieceLocked returns the length of the next frame's payload, and whether any lane may take it.
func (t *transmitter) pieceLocked(p *posted) (n int, shared bool) {
	shared = len(t.e.lanes) > 1 && len(p.local) > pieceShared
	limit := pieceMax
	if shared || t.e.dev.opts.Checksum {
		limit = pieceShared
	}
	return min(len(p.local)-t.off, limit), shared
}

// refuseLocked breaks the connection because of a write that this end can tell to be outside.
func (t *transmitter) refuseLocked(p *posted) {
	cause := fmt.Errorf("tcp: %s: %w: connection broken: %w", t.e.label, rdma.ErrPeerLost, p.refused)
	t.failAt = header{key: p.key, addr: p.addr, seq: t.next}
	t.breakLocked(cause, failAccess)
}

// breakLocked fails all writes that the kernel has not taken, and later ones. If tell is not 0 the
// peer gets to know, otherwise the stream ends.
func (t *transmitter) breakLocked(cause error, tell failCode) {
	if t.err != nil || t.closed {
		return
	}
	t.err = cause
	t.e.dead.Store(true)
	t.fail = tell
	for n := t.done; n < t.tail; n++ {
		p := t.at(n)
		p.err, p.local, p.open = cause, nil, 0
	}
	t.done, t.next, t.off = t.tail, t.tail, 0
	for _, l := range t.e.lanes {
		l.out.credits = l.out.credits[:0]
		if tell != 0 { // the frame comes whole first, and the peer may announce it; its memory is the user's from now on
			l.out.big = slices.Clone(l.out.big)
		}
	}
	t.e.cq.unwatch(t.e.lanes)
	if tell == 0 || t.stuck != 0 {
		t.endLocked()
	}
}

// endLocked ends the streams to the peer and drops what lanes still hold.
func (t *transmitter) endLocked() {
	t.fail, t.last = 0, false
	for _, l := range t.e.lanes {
		t.blockLocked(l, false)
		l.out.drop()
		_ = unix.Shutdown(l.fd, unix.SHUT_WR)
	}
}

// settleLocked frees the places of writes that complete silently and brings the flags for Poll up to
// date. It tells whether the queue has something new to poll.
func (t *transmitter) settleLocked() (notify bool) {
	for t.head < t.done {
		p := t.at(t.head)
		if p.signaled || p.err != nil {
			break
		}
		*p = posted{}
		t.head++
	}
	wants := t.next < t.tail || t.fail != 0
	if t.e.rails != nil {
		wants = t.e.rails.wantsLocked(t)
	}
	for _, l := range t.e.lanes {
		wants = wants || !l.out.empty()
	}
	if wants != t.wants.Load() {
		t.wants.Store(wants)
	}
	ready := t.head < t.done
	if ready == t.harvest.Load() {
		return false
	}
	t.harvest.Store(ready)
	if ready {
		t.e.cq.harvests.Add(1)
	} else {
		t.e.cq.harvests.Add(-1)
	}
	return ready
}

// harvestLocked moves finished writes into cs.
func (t *transmitter) harvestLocked(cs []rdma.Completion) int {
	n := 0
	for n < len(cs) && t.head < t.done {
		p := t.at(t.head)
		if p.signaled || p.err != nil {
			cs[n] = rdma.Completion{Kind: rdma.Wrote, Endpoint: t.e.id, ID: p.id, Err: p.err}
			n++
		}
		*p = posted{}
		t.head++
	}
	return n
}

// closeLocked says farewell, if no frame is under way, and forgets everything.
func (t *transmitter) closeLocked() {
	for _, l := range t.e.lanes {
		if t.err == nil && l.out.empty() {
			bye := header{kind: frameBye}
			_, _ = l.out.vec.send(l.fd, bye.append(nil), nil, nil)
		}
	}
	t.closed = true
	t.ring = make([]posted, 1)
	t.inline = nil
	t.head, t.done, t.next, t.tail = 0, 0, 0, 0
	t.fail, t.last = 0, false
	for _, l := range t.e.lanes {
		t.blockLocked(l, false)
		l.out = outLane{}
	}
	t.settleLocked()
}

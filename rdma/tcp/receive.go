//go:build linux

package tcp

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"syscall"

	"github.com/gccl/gccl/rdma"
)

const (
	// inBuffer holds headers and short payloads, which then need one call, and one copy more than
	// long ones.
	inBuffer = 32 << 10
	// inLongBuffer is how much of it is used while frames are longer than that: the beginning of the
	// next payload is copied twice.
	inLongBuffer = 1 << 10
	// readBudget bounds what one Poll reads from one socket.
	readBudget = 4 << 20
)

// receiver is the receiving half of an endpoint, guarded by the queue's mu.
type receiver struct {
	seq uint64 // of the write that is being landed
	got uint32 // bytes of it that have landed
	bye bool   // the peer said farewell
}

// inLane is what has been read from a socket and not landed: buf[r:w]; and the frame that is being
// landed.
type inLane struct {
	vec    vectors
	buf    []byte
	r, w   int
	h      header
	state  inState
	region *region
	left   []byte // of the frame's range, what has not landed
	crc    uint32
	round  uint32 // of the region's detours,
	// diverted: left is elsewhere than in the region.
	diverted bool
	eof      bool          // the stream has ended,
	errno    syscall.Errno // like this
	over     bool          // it ends, as the watcher has seen,
	skip     int           // bytes of a dropped frame that are next
	idle     int           // reads in a row that found nothing
	hot      bool          // polled directly, see queue
	listed   bool          // in the in set of the queue
	again    bool          // in the queue's again list
}

type inState uint8

const (
	inHeader  inState = iota // a header is next
	inParked                 // h belongs to a later write than is being landed
	inPayload                // bytes for left are next
	inSkip                   // skip bytes are next that nobody wants
)

// outcome is why a step of receiving ended.
type outcome uint8

const (
	drained outcome = iota // the socket has no more
	more                   // the socket may have more
	full                   // no room for completions
	waiting                // for another socket of the endpoint
	ended                  // the endpoint is broken now
)

// receive reads and lands what is there, within the budget. If the endpoint breaks, the cause is
// returned for the queue to tell.
func (l *lane) receive(cs []rdma.Completion) (n int, end outcome, cause error) {
	e, in := l.e, &l.in
	for budget := readBudget; budget > 0; {
		k, end, cause := l.land(cs[n:])
		n += k
		if end != more || e.dead.Load() {
			return n, end, cause
		}
		got, asked, errno := l.read()
		switch {
		case errno == syscall.EAGAIN:
			return n, drained, nil
		case errno == syscall.EFAULT: // the region was closed while the frame was under way
			return n, ended, l.refuse(failAccess, in.region.gone())
		case errno != 0 || got == 0:
			if n > 0 { // these completions come first; the next Poll finds the end again
				return n, drained, nil
			}
			return 0, ended, l.streamEnded(errno)
		case got < asked: // that was all, which saves a call to find out
			k, end, cause := l.land(cs[n:])
			if end == more {
				end = drained
			}
			return n + k, end, cause
		}
		budget -= got
	}
	return n, more, nil
}

// read makes one call: into the region, as far as a payload is under way, and into the buffer. It
// fails with EFAULT if the region is closed.
func (l *lane) read() (got, asked int, errno syscall.Errno) {
	in := &l.in
	if in.buf == nil {
		in.buf = make([]byte, inBuffer)
	}
	in.w = copy(in.buf, in.buf[in.r:in.w])
	in.r = 0
	limit := len(in.buf)
	if in.h.length >= inBuffer && in.state != inSkip { // the next frame is likely to be as long
		limit = inLongBuffer
	}
	space := in.buf[in.w:max(in.w, limit)]
	if in.state != inPayload {
		got, errno = in.vec.recv(l.fd, nil, space)
		in.w += got
		return got, len(space), errno
	}
	in.region.landing.RLock()
	defer in.region.landing.RUnlock()
	if in.region.closed.Load() {
		return 0, 0, syscall.EFAULT
	}
	in.restore()
	got, errno = in.vec.recv(l.fd, in.left, space)
	asked = len(in.left) + len(space)
	direct := min(got, len(in.left))
	l.landed(in.left[:direct])
	in.w += got - direct
	return got, asked, errno
}

// landed notes that the next bytes of the payload are in place. The region is locked.
func (l *lane) landed(b []byte) {
	in := &l.in
	if in.h.flags&flagChecksum != 0 {
		in.crc = crc32.Update(in.crc, castagnoli, b)
	}
	in.left = in.left[len(b):]
}

// land takes in what the buffer holds, frame by frame.
func (l *lane) land(cs []rdma.Completion) (n int, end outcome, cause error) {
	in := &l.in
	for {
		if n == len(cs) {
			return n, full, nil
		}
		switch in.state {
		case inHeader:
			if in.w-in.r < headerLen {
				return n, more, nil
			}
			if cause = l.begin(); cause != nil {
				return n, ended, cause
			}
		case inParked:
			if l.e.rails != nil {
				if wait, cause := l.unpark(); wait || cause != nil {
					return n, waiting, cause
				}
				continue
			}
			if in.h.seq != l.e.rx.seq {
				return n, waiting, nil
			}
			in.state = inPayload
		case inSkip:
			k := min(in.skip, in.w-in.r)
			in.r += k
			if in.skip -= k; in.skip > 0 {
				return n, more, nil
			}
			in.state = inHeader
		case inPayload:
			if cause = l.copyIn(); cause != nil {
				return n, ended, cause
			}
			if len(in.left) > 0 {
				return n, more, nil
			}
			k, cause := l.finish(cs[n:])
			n += k
			if cause != nil {
				return n, ended, cause
			}
		}
	}
}

// begin takes the next header from the buffer and checks that the frame may land.
func (l *lane) begin() error {
	e, in := l.e, &l.in
	if err := in.h.parse(in.buf[in.r:]); err != nil {
		return l.refuse(failProtocol, err)
	}
	in.r += headerLen
	h := &in.h
	switch h.kind {
	case frameBye:
		e.rx.bye = true
		return nil
	case frameFail:
		return l.refused()
	}
	if done, err := l.beginRail(); done {
		return err
	}
	if h.length > 0 {
		r, err := e.dev.regions.find(h.key, h.addr, uint64(h.length))
		if err != nil {
			return l.refuse(failAccess, err)
		}
		in.region, in.left = r, r.bytes[h.addr:h.addr+uint64(h.length)]
		dst, round := r.detours.take(h)
		if in.diverted = dst != nil; in.diverted {
			in.left, in.round = dst, round
		}
	} else {
		in.region, in.left, in.diverted = &nowhere, nil, false
	}
	in.state, in.crc = inParked, 0
	if e.rails == nil && h.seq != e.rx.seq {
		return l.refuse(failProtocol, fmt.Errorf("%w: write %d when %d is expected", errFrame, h.seq, e.rx.seq))
	}
	return nil
}

// nowhere is the region of writes without bytes.
var nowhere region

// copyIn lands what the buffer holds of the payload.
func (l *lane) copyIn() error {
	in := &l.in
	if len(in.left) == 0 || in.r == in.w {
		return nil
	}
	in.region.landing.RLock()
	defer in.region.landing.RUnlock()
	if in.region.closed.Load() {
		return l.refuse(failAccess, in.region.gone())
	}
	in.restore()
	k := copy(in.left, in.buf[in.r:in.w])
	in.r += k
	l.landed(in.left[:k])
	return nil
}

// finish ends a frame whose payload has landed, and the write if it was the last one.
func (l *lane) finish(cs []rdma.Completion) (n int, cause error) {
	e, in := l.e, &l.in
	h := &in.h
	if h.flags&flagChecksum != 0 && in.crc != h.crc {
		return 0, l.refuse(failChecksum, fmt.Errorf("payload checksum %#08x, computed %#08x: %d bytes at %d of region %q, write %d",
			h.crc, in.crc, h.length, h.addr, in.region.purpose, h.seq))
	}
	if uint64(e.rx.got)+uint64(h.length) > uint64(h.total) {
		return 0, l.refuse(failProtocol, fmt.Errorf("%w: more than the %d bytes of write %d", errFrame, h.total, h.seq))
	}
	in.state, in.region, in.left = inHeader, nil, nil
	if e.rx.got += h.length; e.rx.got < h.total {
		return 0, nil
	}
	e.rx.got = 0
	e.rx.seq++
	for _, other := range e.lanes {
		if other.in.state == inParked && other != l {
			e.cq.revisitLocked(other)
		}
	}
	if e.rails != nil {
		e.rails.recv.Finished()
		if h.flags&flagAck != 0 {
			e.acknowledge()
		}
	}
	if h.flags&flagImm == 0 {
		return 0, nil
	}
	cs[0] = rdma.Completion{Kind: rdma.Received, Endpoint: e.id, Imm: h.imm, Len: int(h.total)}
	return 1, nil
}

// refuse breaks the endpoint because of what the peer sent, and has the peer told.
func (l *lane) refuse(code failCode, what error) error {
	cause := fmt.Errorf("refused what came from the peer: %w", what)
	cause = l.e.lost(l, cause)
	t := &l.e.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failAt = l.in.h
	t.breakLocked(cause, code)
	t.pumpLocked()
	t.settleLocked()
	return cause
}

// refused breaks the endpoint because the peer has refused something and ended the connection.
func (l *lane) refused() error {
	h := &l.in.h
	what := fmt.Errorf("refused by the peer: code %d", h.imm)
	switch failCode(h.imm) {
	case failAccess:
		what = fmt.Errorf("%w: refused by the peer: write %d to %d", rdma.ErrAccess, h.seq, h.addr)
	case failChecksum:
		what = fmt.Errorf("refused by the peer: wrong payload checksum in write %d to %d", h.seq, h.addr)
	case failProtocol:
		what = errors.New("refused by the peer: malformed frame")
	}
	return l.e.fail(l.e.lost(l, what))
}

// streamEnded notes the end of a lane's stream. It breaks the endpoint once the streams of all
// lanes have ended: another one may still hold something to read. If the others go on, checkEnd
// breaks the endpoint.
func (l *lane) streamEnded(errno syscall.Errno) error {
	l.in.eof, l.in.errno = true, errno
	for _, other := range l.e.lanes {
		if !other.in.eof {
			l.e.cq.stopReading(l)
			if !l.in.over {
				l.e.cq.endingLocked(l, errno != 0)
			}
			return nil
		}
	}
	return l.atEnd(errno)
}

// atEnd breaks the endpoint at the end of the stream.
func (l *lane) atEnd(errno syscall.Errno) error {
	if l.e.rails != nil {
		return l.e.endRails(l, errno)
	}
	return l.e.fail(l.e.lost(l, l.ended(errno)))
}

// ended is what the end of a lane's stream means.
func (l *lane) ended(errno syscall.Errno) error {
	switch {
	case errno != 0:
		return errno
	case l.e.rx.bye:
		return errPeerClosed
	case l.in.state != inHeader || l.in.r < l.in.w:
		return fmt.Errorf("%w, in the middle of a frame: %w", errPeerEnded, io.ErrUnexpectedEOF)
	}
	return errPeerEnded
}

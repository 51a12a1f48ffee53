package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// Post hands writes to the card, up to sendBatch in one call of the library, without allocating. While
// the peer still connects, it keeps them, and copies the bytes of inline ones.
func (e *endpoint) Post(ws []rdma.Write) (int, error) {
	if !e.guard.enter() {
		return 0, e.closedError()
	}
	if e.state.Load() != ready {
		if n, kept, err := e.keep(ws); kept || err != nil {
			e.guard.leave()
			return n, err
		}
	}
	n, err := e.post(ws)
	e.guard.leave()
	return n, err
}

// keep puts writes aside; kept is false if the endpoint has become ready.
func (e *endpoint) keep(ws []rdma.Write) (n int, kept bool, err error) {
	e.pend.Lock()
	defer e.pend.Unlock()
	if err := e.failure(); err != nil {
		return 0, false, err
	}
	if e.state.Load() == ready {
		return 0, false, nil
	}
	for i := range ws {
		if len(e.pending) == e.dev.attr.MaxPosted {
			return i, true, nil
		}
		if err := e.check(&ws[i], e.quiet); err != nil {
			return i, true, err
		}
		w := ws[i]
		e.quiet++
		if w.Signaled {
			e.quiet = 0
		}
		if w.Inline {
			w.Local = append([]byte(nil), w.Local...)
		}
		e.pending = append(e.pending, w)
	}
	return len(ws), true, nil
}

// post hands writes over. One goroutine at a time.
func (e *endpoint) post(ws []rdma.Write) (int, error) {
	taken := 0
	for taken < len(ws) {
		n := min(len(ws)-taken, e.dev.attr.MaxPosted-int(e.posted-e.head.Load()), len(e.send.Requests))
		var bad error
		for i := range n {
			w := &ws[taken+i]
			if !w.Inline || !fits(&e.dev.attr, w, e.silent) {
				if bad = e.check(w, e.silent); bad != nil {
					n = i
					break
				}
			}
			e.fill(&e.send.Requests[i], w, e.posted+uint64(i))
		}
		if n == 0 {
			return taken, bad
		}
		k, err := e.hand(n)
		if taken += k; err != nil || k < n {
			return taken, err
		}
		if bad != nil {
			return taken, bad
		}
	}
	return taken, nil
}

// hand has the library take a chain of n requests.
func (e *endpoint) hand(n int) (taken int, err error) {
	e.tail.Store(e.posted + uint64(n))
	taken, err = e.send.Post(n)
	e.posted += uint64(taken)
	if err == nil {
		return taken, nil
	}
	e.tail.Store(e.posted)
	e.recount()
	if errors.Is(err, unix.ENOMEM) && e.posted != e.head.Load() {
		return taken, nil // the library's queue is full before ours
	}
	return taken, fmt.Errorf("verbs: %v: ibv_post_send: %w", e, err)
}

// lineBytes is how long most writes are: a message in a line of a link.
const lineBytes = 64

// fill makes a request from a write, which is number seq.
func (e *endpoint) fill(q *ibv.Request, w *rdma.Write, seq uint64) {
	k := &e.kept[seq&uint64(len(e.kept)-1)]
	k.id, k.signaled = w.ID, w.Signaled
	r := q.WR
	r.ID = packID(e.id, kindWrite, seq)
	op, imm := uint32(ibv.OpWrite), uint32(0)
	if w.HasImm {
		op, imm = ibv.OpWriteImm, ibv.NetworkOrder(w.Imm)
	}
	r.Opcode, r.Imm = op, imm
	flags, silent := uint32(0), e.silent+1
	if w.Signaled {
		flags, silent = ibv.SendSignaled, 0
	}
	e.silent = silent
	if len(w.Local) == 0 { // no key is looked at (InfiniBand Architecture, C9-88)
		r.Flags, r.NumSGE, r.RemoteAddr, r.RKey = flags, 0, 0, 0
		return
	}
	r.NumSGE, r.RemoteAddr, r.RKey = 1, w.Remote.Addr+w.Offset, uint32(w.Remote.Key)
	sg := q.SG
	sg.Len = uint32(len(w.Local))
	if !w.Inline {
		r.Flags, sg.Addr, sg.LKey = flags, uint64(ibv.Addr(w.Local)), w.Region.(*region).lkey
		return
	}
	r.Flags, sg.Addr, sg.LKey = flags|ibv.SendInline, q.Addr, 0
	if len(w.Local) == lineBytes {
		line := [lineBytes]byte(w.Local) // which the compiler copies without a call
		*(*[lineBytes]byte)(q.Inline) = line
		return
	}
	copy(q.Inline, w.Local)
}

// recount finds silent after a chain that was taken in part.
func (e *endpoint) recount() {
	mask := uint64(len(e.kept) - 1)
	e.silent = 0
	for seq := e.posted; seq > e.head.Load() && !e.kept[(seq-1)&mask].signaled; seq-- {
		e.silent++
	}
}

// check finds the caller's mistakes, before anything moved.
func (e *endpoint) check(w *rdma.Write, silent int) error {
	if err := checkLength(&e.dev.attr, w, silent); err != nil || w.Inline || len(w.Local) == 0 {
		return err
	}
	r, ok := w.Region.(*region)
	if !ok || r.dev != e.dev {
		return fmt.Errorf("verbs: %v: the write's region is not of this device", e)
	}
	return r.checkHolds(w.Local)
}

// fits reports whether checkLength has no objection.
func fits(a *rdma.Attr, w *rdma.Write, silent int) bool {
	n := len(w.Local)
	return n <= a.MaxMessage && (!w.Inline || n <= a.MaxInline) && (w.Signaled || silent < int(uint(a.MaxPosted)/2))
}

// checkLength finds what a device takes no write of. silent is how many unsignaled ones in a row are before it.
func checkLength(a *rdma.Attr, w *rdma.Write, silent int) error {
	switch n := len(w.Local); {
	case fits(a, w, silent):
		return nil
	case n > a.MaxMessage:
		return fmt.Errorf("verbs: write of %d bytes: MaxMessage is %d", n, a.MaxMessage)
	case w.Inline && n > a.MaxInline:
		return fmt.Errorf("verbs: inline write of %d bytes: MaxInline is %d", n, a.MaxInline)
	}
	return fmt.Errorf("verbs: %d unsignaled writes in a row: one in MaxPosted/2 = %d must be signaled", silent+1, a.MaxPosted/2)
}

// checkHolds reports an error if the region is closed, or the bytes of a write are not inside it.
func (r *region) checkHolds(local []byte) error {
	if r.closed.Load() {
		return fmt.Errorf("verbs: %w: the write's region", rdma.ErrClosed)
	}
	if _, inside := hostmem.Offset(r.bytes, local); !inside {
		return errors.New("verbs: the write's bytes are not inside its region")
	}
	return nil
}

// wrote turns the completion of a write into c; false if its user did not ask for one. An error is
// always told for the write that failed, and for signaled ones after it.
func (e *endpoint) wrote(wc *ibv.WC, c *rdma.Completion) bool {
	head := e.head.Load()
	seq := head + (wc.ID-head)&seqMask
	if seq >= e.tail.Load() {
		return false // not ours: a card's error
	}
	k := e.kept[seq&uint64(len(e.kept)-1)]
	e.head.Store(seq + 1)
	var err error
	if wc.Status != ibv.Success {
		err = e.writeFailed(wc)
		if !k.signaled && wc.Status == ibv.Flushed {
			return false
		}
	} else if !k.signaled {
		return false
	}
	*c = rdma.Completion{Kind: rdma.Wrote, Endpoint: e.id, ID: k.id, Err: err}
	return true
}

// writeFailed breaks the endpoint and returns the write's error: for flushed ones, what broke it.
func (e *endpoint) writeFailed(wc *ibv.WC) error {
	err := e.completionError(wc.Status, wc.VendorErr)
	e.lost(brokenBy(err))
	if wc.Status != ibv.Flushed {
		return err
	}
	e.life.Lock()
	defer e.life.Unlock()
	if e.cause != nil {
		return e.cause
	}
	return err
}

// brokenBy makes a cause for OnLost, which wraps ErrPeerLost in any case.
func brokenBy(err error) error {
	if errors.Is(err, rdma.ErrPeerLost) {
		return err
	}
	return fmt.Errorf("%w: connection broken: %w", rdma.ErrPeerLost, err)
}

// receiveFailed: the queue pair is in the error state, because of something that the peer did.
func (e *endpoint) receiveFailed(s ibv.Status) {
	e.lost(fmt.Errorf("verbs: %v: connection broken: receives ended with %v (a peer's write was refused here, or the card failed): %w",
		e, s, rdma.ErrPeerLost))
}

// received counts a used receive, and posts a chain again when as many are used.
func (e *endpoint) received() {
	e.consumed++
	if e.consumed < recvBatch {
		return
	}
	e.consumed = 0
	if !e.guard.enter() {
		return
	}
	defer e.guard.leave()
	if err := e.recv.Post(); err != nil {
		e.lost(fmt.Errorf("verbs: %v: %w: %w", e, err, rdma.ErrPeerLost))
	}
}

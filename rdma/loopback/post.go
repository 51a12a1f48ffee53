package loopback

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/rdma"
)

// Post carries the writes out, one after the other. It stops early when the queue is full, and
// after a write that failed: that one counts as taken and has a completion with the error.
func (e *endpoint) Post(ws []rdma.Write) (int, error) {
	for i := range ws {
		taken, err := e.post(&ws[i])
		switch {
		case err != nil && taken:
			e.breakBoth(err)
			return i + 1, nil
		case !taken:
			return i, err
		}
	}
	return len(ws), nil
}

// post carries out one write. If it was taken and then failed, the error is in its completion, and
// the caller breaks the connection.
func (e *endpoint) post(w *rdma.Write) (taken bool, err error) {
	e.out.Lock()
	if err = e.failure(); err == nil && e.posted-e.retired.Load() >= int64(e.dev.attr.MaxPosted) {
		e.out.Unlock()
		return false, nil
	}
	if err == nil {
		err = e.check(w)
	}
	if err != nil {
		e.out.Unlock()
		return false, err
	}
	e.posted++
	e.silent++
	ringPeer, err := e.peer.accept(w)
	ring := false
	if w.Signaled || err != nil {
		ring = e.cq.push(entry{
			Completion: rdma.Completion{Kind: rdma.Wrote, Endpoint: e.id, ID: w.ID, Err: err},
			from:       e,
			places:     e.silent,
		})
		e.silent = 0
	}
	e.out.Unlock()
	if ringPeer {
		e.peer.cq.ring()
	}
	if ring {
		e.cq.ring()
	}
	return true, err
}

// check finds the caller's mistakes, before anything moved.
func (e *endpoint) check(w *rdma.Write) error {
	a := &e.dev.attr
	switch n := len(w.Local); {
	case n > a.MaxMessage:
		return fmt.Errorf("loopback: write of %d bytes: MaxMessage is %d", n, a.MaxMessage)
	case w.Inline && n > a.MaxInline:
		return fmt.Errorf("loopback: inline write of %d bytes: MaxInline is %d", n, a.MaxInline)
	case !w.Signaled && e.silent >= a.MaxPosted/2:
		return fmt.Errorf("loopback: %d unsignaled writes in a row: one in MaxPosted/2 = %d must be signaled", e.silent+1, a.MaxPosted/2)
	case w.Inline || n == 0:
		return nil
	}
	r, ok := w.Region.(*region)
	if !ok || r.dev != e.dev {
		return fmt.Errorf("loopback: %v: the write's region is not of this device", e)
	}
	e.dev.mu.RLock()
	open := r.open
	e.dev.mu.RUnlock()
	if !open {
		return fmt.Errorf("%w: the write's region %q", rdma.ErrClosed, r.purpose)
	}
	if !inside(r.bytes, w.Local) {
		return errors.New("loopback: the write's bytes are not inside its region")
	}
	return nil
}

// accept lands a peer's write here. A write without bytes reaches no region, so that its Remote is
// not looked at (as in verbs: InfiniBand Architecture, C9-88).
func (e *endpoint) accept(w *rdma.Write) (mustRing bool, err error) {
	e.in.Lock()
	defer e.in.Unlock()
	if s := e.state.Load(); s == closed || s == broken {
		return false, fmt.Errorf("%w: %v is closed or broken", rdma.ErrPeerLost, e)
	}
	if w.HasImm && e.unpolled.Load() >= int64(e.opts.RecvDepth) {
		return false, fmt.Errorf("%w: credits violated: %v has %d writes with immediate unpolled, all that its RecvDepth allows",
			rdma.ErrPeerLost, e, e.opts.RecvDepth)
	}
	if len(w.Local) > 0 {
		e.dev.mu.RLock()
		dst, err := e.dev.findLocked(w.Remote, w.Offset, len(w.Local))
		if err == nil {
			store(dst, w.Local)
		}
		e.dev.mu.RUnlock()
		if err != nil {
			return false, err
		}
	}
	if !w.HasImm {
		return false, nil
	}
	e.unpolled.Add(1)
	return e.cq.push(entry{
		Completion: rdma.Completion{Kind: rdma.Received, Endpoint: e.id, Imm: w.Imm, Len: len(w.Local)},
		from:       e,
	}), nil
}

// breakBoth ends the connection because something that this end asked for was refused.
func (e *endpoint) breakBoth(cause error) {
	own := cause
	if !errors.Is(cause, rdma.ErrPeerLost) {
		own = fmt.Errorf("%w: connection broken: %w", rdma.ErrPeerLost, cause)
	}
	e.lost(own)
	e.peer.lost(fmt.Errorf("%w: connection broken: refused to %v: %w", rdma.ErrPeerLost, e, cause))
}

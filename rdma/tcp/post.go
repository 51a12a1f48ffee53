//go:build linux

package tcp

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// Post takes writes and sends as much as the socket takes now.
func (e *endpoint) Post(ws []rdma.Write) (int, error) {
	t := &e.tx
	t.mu.Lock()
	if err := t.refusalLocked(); err != nil {
		t.mu.Unlock()
		return 0, err
	}
	first := t.tail
	var err error
	n := 0
	for n < len(ws) && t.tail-t.head < uint64(len(t.ring)) {
		if err = e.check(&ws[n]); err != nil {
			break
		}
		t.takeLocked(&ws[n])
		n++
	}
	t.pumpLocked()
	t.keepInlineLocked(first)
	notify := t.settleLocked()
	cause := t.err
	t.mu.Unlock()
	if cause != nil {
		e.tell(cause)
	}
	if notify {
		e.cq.notify()
	}
	return n, err
}

// refusalLocked is why nothing can be posted.
func (t *transmitter) refusalLocked() error {
	switch {
	case t.closed:
		return fmt.Errorf("tcp: post: %w: endpoint", rdma.ErrClosed)
	case t.err != nil:
		return t.err
	case t.e.lanes == nil:
		return errors.New("tcp: post: the endpoint is not connected")
	}
	return nil
}

// check finds the caller's mistakes, before anything moved.
func (e *endpoint) check(w *rdma.Write) error {
	switch n := len(w.Local); {
	case n > maxMessage:
		return fmt.Errorf("tcp: write of %d bytes: MaxMessage is %d", n, maxMessage)
	case w.Inline && n > maxInline:
		return fmt.Errorf("tcp: inline write of %d bytes: MaxInline is %d", n, maxInline)
	case w.Inline || n == 0 || w.Region == nil:
		return nil
	}
	r, ok := w.Region.(*region)
	if !ok || r.dev != e.dev {
		return errors.New("tcp: the write's region is not of this device")
	}
	if r.closed.Load() {
		return fmt.Errorf("%w: the write's region %q", rdma.ErrClosed, r.purpose)
	}
	if _, inside := hostmem.Offset(r.bytes, w.Local); !inside {
		return fmt.Errorf("tcp: the write's bytes are not inside its region %q", r.purpose)
	}
	return nil
}

// takeLocked puts a write into the ring.
func (t *transmitter) takeLocked(w *rdma.Write) {
	p := t.at(t.tail)
	*p = posted{
		id:       w.ID,
		local:    w.Local,
		key:      w.Remote.Key,
		addr:     w.Remote.Addr + w.Offset,
		imm:      w.Imm,
		signaled: w.Signaled,
	}
	if w.HasImm {
		p.flags |= flagImm
	}
	n := uint64(len(w.Local))
	if n > 0 && (w.Offset > w.Remote.Len || n > w.Remote.Len-w.Offset || p.addr < w.Offset) {
		p.refused = fmt.Errorf("%w: bytes [%d, +%d) of a region described as %d long", rdma.ErrAccess, w.Offset, n, w.Remote.Len)
	}
	t.tail++
}

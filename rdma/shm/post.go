//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/internal/invariant"
	"github.com/gccl/gccl/rdma"
)

const (
	// copyPiece bounds one call of the copying kernel: it cannot be preempted, and the garbage
	// collector's stop waits for it (a piece takes about 0.1 ms).
	copyPiece = 1 << 20
	// mapPatience is how long a Post waits for the owner of a region that was not mapped before.
	mapPatience = 100 * time.Millisecond
)

// Post implements rdma.Endpoint. A write is done, and its Local free, when Post returns. The first
// write to a region asks its owner for it and may wait 100 ms; if there is no answer yet, the write
// counts as not taken. Later writes never wait. Call Map before to keep the wait out of the way.
//
// A write with a wrong key or range completes with an error that wraps rdma.ErrAccess, signaled or
// not, and breaks the endpoint. A write without bytes needs no region.
func (e *Endpoint) Post(ws []rdma.Write) (int, error) {
	if !e.use.acquire() {
		return 0, errEndpointClosed
	}
	defer e.use.release()
	if invariant.Enabled {
		invariant.Check(!e.posting.Swap(true), "two goroutines post to one shm endpoint")
		defer e.posting.Store(false)
	}
	return e.post(ws)
}

// awaitUsers returns when no Post and no Poll uses the memory of a closed endpoint: after a piece of
// a copy at most.
func (e *Endpoint) awaitUsers() {
	for !e.use.over() {
		time.Sleep(10 * time.Microsecond) // bounded by one piece of a copy
	}
}

func (e *Endpoint) post(ws []rdma.Write) (int, error) {
	p := e.peer.Load()
	rang, completed := false, false
	n := 0
	var err error
	for ; n < len(ws); n++ {
		w := &ws[n]
		if err = e.err(); err != nil {
			break
		}
		if p == nil {
			err = errNotConnected
			break
		}
		if err = e.checkLocal(w); err != nil {
			break
		}
		if w.Signaled && !e.wrote.room() || w.HasImm && !p.out.room() {
			break
		}
		taken, access := e.write(w)
		if access != nil {
			e.wrote.failed.Store(&rdma.Completion{Kind: rdma.Wrote, Endpoint: e.id, ID: w.ID, Err: access})
			e.refused(access)
			completed = true
			n++
			break
		}
		if !taken {
			err = e.err()
			break
		}
		if w.HasImm {
			p.out.put(w.Imm, len(w.Local))
			rang = true
		}
		if w.Signaled {
			e.wrote.put(w.ID)
			completed = true
		}
	}
	if rang {
		p.bell.ring()
	}
	if completed {
		e.dev.ring() // a queue of this process may be armed
	}
	return n, err
}

// checkLocal finds the caller's mistakes. They leave the endpoint in order.
func (e *Endpoint) checkLocal(w *rdma.Write) error {
	switch {
	case len(w.Local) == 0:
		return nil
	case len(w.Local) > maxMessage:
		return fmt.Errorf("shm: write %d of %d bytes, at most %d", w.ID, len(w.Local), maxMessage)
	case w.Inline:
		if len(w.Local) > maxInline {
			return fmt.Errorf("shm: inline write %d of %d bytes, at most %d", w.ID, len(w.Local), maxInline)
		}
		return nil
	}
	r, ok := w.Region.(*region)
	if !ok || r.dev != e.dev {
		return fmt.Errorf("shm: write %d: its region is not of this device", w.ID)
	}
	if r.closed.Load() {
		return fmt.Errorf("shm: write %d: its region is closed: %w", w.ID, rdma.ErrClosed)
	}
	if _, inside := hostmem.Offset(r.b, w.Local); !inside {
		return fmt.Errorf("shm: write %d: its %d bytes are not inside its region", w.ID, len(w.Local))
	}
	return nil
}

// write copies the bytes of w. Not taken means that the owner of the region has not answered yet; an
// error, that the access is refused.
func (e *Endpoint) write(w *rdma.Write) (taken bool, access error) {
	size := uint64(len(w.Local))
	if size == 0 {
		return true, nil
	}
	if w.Offset > w.Remote.Len || size > w.Remote.Len-w.Offset {
		return false, fmt.Errorf("shm: write [%d, +%d) beyond a region of %d bytes: %w", w.Offset, size, w.Remote.Len, rdma.ErrAccess)
	}
	m := e.last
	if m == nil || m.id.key != w.Remote.Key || w.Remote.Addr != 0 || w.Remote.Len > uint64(len(m.b)) || m.state.Load() != 0 {
		var err error
		if m, err = e.remoteSoon(w.Remote); err != nil || m == nil {
			return false, err
		}
		e.last = m
	}
	dst := m.b[w.Offset : w.Offset+size]
	for src := w.Local; len(src) > 0; {
		if e.closed.Load() {
			return false, nil
		}
		n := copy(dst, src[:min(len(src), copyPiece)])
		dst, src = dst[n:], src[n:]
	}
	return true, nil
}

// remoteSoon is remote with a short wait; nil and no error mean that the answer is not there, or that
// the endpoint is down, which the next look finds.
func (e *Endpoint) remoteSoon(r rdma.RemoteRegion) (*remoteMap, error) {
	ctx, cancel := context.WithTimeout(context.Background(), mapPatience)
	defer cancel()
	m, err := e.remote(ctx, r)
	if err == nil {
		return m, nil
	}
	if errors.Is(err, context.DeadlineExceeded) || e.err() != nil || errors.Is(err, rdma.ErrPeerLost) {
		return nil, nil
	}
	return nil, err
}

//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// mapCall is a request for a peer's region on its way. Done is closed when m or err is set.
type mapCall struct {
	done chan struct{}
	m    *remoteMap
	err  error
}

// Map implements rdma.LoadStore. The first call for a region asks its owner; other endpoints of the
// device that are connected to the same device share the mapping. A refusal (rdma.ErrAccess) breaks
// the endpoint.
func (e *Endpoint) Map(ctx context.Context, r rdma.RemoteRegion) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !e.use.acquire() {
		return nil, errEndpointClosed
	}
	defer e.use.release()
	m, err := e.remote(ctx, r)
	if errors.Is(err, rdma.ErrAccess) {
		e.refused(err)
	}
	if err != nil {
		return nil, err
	}
	return m.b[:r.Len:r.Len], nil
}

// Populate implements rdma.Populator.
func (e *Endpoint) Populate(part []byte) error {
	if !e.use.acquire() {
		return errEndpointClosed
	}
	defer e.use.release()
	for _, m := range *e.maps.Load() {
		if off, ok := hostmem.Offset(m.b, part); ok {
			if err := m.mem.Populate(off, len(part)); err != nil {
				return fmt.Errorf("shm: %w", err)
			}
			return nil
		}
	}
	return fmt.Errorf("shm: not a part of the peer's memory: %w", rdma.ErrAccess)
}

// remote returns the mapping of r, valid until the endpoint is closed. The caller holds a lease.
func (e *Endpoint) remote(ctx context.Context, r rdma.RemoteRegion) (*remoteMap, error) {
	switch {
	case r.Key == 0:
		return nil, fmt.Errorf("shm: the region has no key (it is not from Alloc): %w", rdma.ErrAccess)
	case r.Addr != 0:
		return nil, fmt.Errorf("shm: the region begins at %#x, not at 0: %w", r.Addr, rdma.ErrAccess)
	}
	m, call, err := e.request(r)
	if err != nil {
		return nil, err
	}
	if m == nil {
		select {
		case <-call.done:
		case <-e.down:
			return nil, e.err()
		case <-ctx.Done():
			return nil, fmt.Errorf("shm: map %d bytes of the peer: %w", r.Len, ctx.Err())
		}
		if call.err != nil {
			return nil, call.err
		}
		m = call.m
	}
	switch {
	case r.Len > uint64(len(m.b)):
		return nil, fmt.Errorf("shm: region of %d bytes, its owner has %d: %w", r.Len, len(m.b), rdma.ErrAccess)
	case m.state.Load() != 0:
		return nil, fmt.Errorf("shm: the owner has closed the region: %w", rdma.ErrAccess)
	}
	return m, nil
}

// request finds the mapping of r, or joins or sends a request for it.
func (e *Endpoint) request(r rdma.RemoteRegion) (*remoteMap, *mapCall, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer.Load()
	switch {
	case e.err() != nil:
		return nil, nil, e.err()
	case p == nil:
		return nil, nil, errNotConnected
	}
	if m := (*e.maps.Load())[r.Key]; m != nil {
		return m, nil, nil
	}
	if call := e.calls[r.Key]; call != nil {
		return nil, call, nil
	}
	if m := e.dev.mapped(mapKey{p.name, r.Key}); m != nil {
		e.adopt(m)
		return m, nil, nil
	}
	call := &mapCall{done: make(chan struct{})}
	e.calls[r.Key] = call
	ask := message{kind: mapRegion, key: r.Key, length: r.Len}
	if err := p.conn.send(&ask); err != nil { // the watcher will say more
		delete(e.calls, r.Key)
		return nil, nil, fmt.Errorf("shm: ask pid %d for a region: %w: %w", p.conn.pid, rdma.ErrPeerLost, err)
	}
	return nil, call, nil
}

// adopt adds a reference to e's mappings. The caller holds mu and e is open.
func (e *Endpoint) adopt(m *remoteMap) {
	all := maps.Clone(*e.maps.Load())
	all[m.id.key] = m
	e.maps.Store(&all)
}

// finishMap handles the peer's answer to a request. The descriptors stay the caller's.
func (e *Endpoint) finishMap(p *peer, answer *message, fds []int) {
	e.mu.Lock()
	call := e.calls[answer.key]
	delete(e.calls, answer.key)
	e.mu.Unlock()
	if call == nil {
		return // nobody asked
	}
	var m *remoteMap
	var err error
	switch {
	case answer.code == codeAccess:
		err = fmt.Errorf("shm: pid %d refuses the region: %w", p.conn.pid, rdma.ErrAccess)
	case answer.code != codeOK || len(fds) != 1:
		err = fmt.Errorf("shm: pid %d cannot give the region: out of descriptors or memory", p.conn.pid)
	default:
		m, err = e.dev.mapRegion(mapKey{p.name, answer.key}, fds[0], answer.length)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.closed.Load() {
		e.dev.unref(m)
		m, err = nil, errEndpointClosed
	}
	if err == nil {
		e.adopt(m)
	}
	call.m, call.err = m, err
	close(call.done)
}

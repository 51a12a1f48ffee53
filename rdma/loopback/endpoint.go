package loopback

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
)

// state is an endpoint's life: fresh → connected → broken → closed; each step may be left out.
type state = uint32

const (
	fresh state = iota
	connected
	broken
	closed
)

// endpoint is one end of a connection.
//
// Locks are taken in this order: out, the peer's in, a device's mu, a network's or queue's mu or a
// life. No lock is held while a user's function runs.
type endpoint struct {
	dev   *Device
	id    uint32
	cq    *queue
	opts  rdma.EndpointOptions
	token uint64 // names the endpoint in its network

	// peer is set once by Connect, before state becomes connected; claim is who has connected to
	// this endpoint. Both are guarded by the network's mu, but peer needs no lock afterwards.
	peer  *endpoint
	claim *endpoint

	state atomic.Uint32 // written under life
	life  sync.Mutex
	cause error // why it is broken; guarded by life

	out    sync.Mutex // held by Post for one write, so that Close can wait for the copy
	posted int64      // writes taken; guarded by out
	silent int        // unsignaled writes since the last signaled one; guarded by out

	in sync.Mutex // held by the peer's Post while a write lands here

	retired  atomic.Int64 // writes whose place in the send queue is free again
	unpolled atomic.Int64 // writes with immediate received and not polled
}

func (e *endpoint) ID() uint32 { return e.id }

func (e *endpoint) String() string { return fmt.Sprintf("endpoint %d of %v", e.id, e.dev) }

// addressMagic begins an address; the token follows in little endian.
const addressMagic = "lpbk"

func (e *endpoint) Address() []byte {
	return binary.LittleEndian.AppendUint64([]byte(addressMagic), e.token)
}

func parseAddress(b []byte) (token uint64, err error) {
	if len(b) != len(addressMagic)+8 || string(b[:len(addressMagic)]) != addressMagic {
		return 0, fmt.Errorf("loopback: %d bytes that are not an address", len(b))
	}
	return binary.LittleEndian.Uint64(b[len(addressMagic):]), nil
}

// Connect never waits: the peer's memory is there, whether the peer has called Connect or not.
func (e *endpoint) Connect(ctx context.Context, remote []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	token, err := parseAddress(remote)
	if err != nil {
		return err
	}
	if s := e.state.Load(); s == broken || s == closed {
		return e.failure()
	}
	if err := e.dev.net.pair(e, token); err != nil {
		return err
	}
	e.life.Lock()
	if e.state.Load() == fresh {
		e.state.Store(connected)
	}
	e.life.Unlock()
	// This end may have closed since it was looked at, before it had a peer to tell.
	if e.state.Load() == closed {
		e.peer.lost(fmt.Errorf("%w: %v closed", rdma.ErrPeerLost, e))
	}
	return e.failure()
}

// failure says why the endpoint cannot be used, nil if it can.
func (e *endpoint) failure() error {
	switch e.state.Load() {
	case connected:
		return nil
	case fresh:
		return fmt.Errorf("loopback: %v is not connected", e)
	case closed:
		return fmt.Errorf("%w: %v", rdma.ErrClosed, e)
	}
	e.life.Lock()
	defer e.life.Unlock()
	return e.cause
}

// lost breaks the endpoint and tells its user, if it was connected. cause wraps ErrPeerLost.
func (e *endpoint) lost(cause error) {
	e.life.Lock()
	before := e.state.Load()
	if before == fresh || before == connected {
		e.cause = cause
		e.state.Store(broken)
	}
	e.life.Unlock()
	if before == connected && e.opts.OnLost != nil {
		e.opts.OnLost(cause)
	}
}

// Close returns when no write of this endpoint, in either direction, is being copied any more, so
// that no byte moves through it afterwards. Completions that are in the queue stay there.
func (e *endpoint) Close() error {
	e.shut(fmt.Sprintf("%v closed", e))
	return nil
}

func (e *endpoint) shut(why string) {
	e.life.Lock()
	before := e.state.Load()
	e.state.Store(closed)
	e.life.Unlock()
	if before == closed {
		return
	}
	// Whoever takes these locks later finds the endpoint closed.
	for _, mu := range []*sync.Mutex{&e.out, &e.in} {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // waits for the copy under way
	}
	e.dev.mu.Lock()
	delete(e.dev.endpoints, e)
	e.dev.mu.Unlock()
	if peer := e.dev.net.forget(e); peer != nil {
		peer.lost(fmt.Errorf("%w: %s", rdma.ErrPeerLost, why))
	}
}

// mapped is an endpoint that also shows its peer's memory.
type mapped struct{ *endpoint }

var _ rdma.LoadStore = mapped{}

// Map returns the peer's bytes themselves.
func (m mapped) Map(ctx context.Context, r rdma.RemoteRegion) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := m.failure(); err != nil {
		return nil, err
	}
	d := m.peer.dev
	d.mu.RLock()
	b, err := d.findLocked(r, 0, int(min(r.Len, 1<<62)))
	d.mu.RUnlock()
	if err != nil {
		m.breakBoth(err)
		return nil, err
	}
	return b, nil
}

// Signal rings the peer device's bell.
func (m mapped) Signal() {
	if m.state.Load() == connected {
		m.peer.dev.bell.Ring()
	}
}

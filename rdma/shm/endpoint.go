//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
	"go.uber.org/zap"
)

var _ rdma.Populator = (*Endpoint)(nil)

// Endpoint is one end of a connection. Its methods may be called from any goroutine, Post by one at a
// time.
type Endpoint struct {
	dev    *Device
	queue  *queue
	id     uint32
	token  token
	onLost func(error)

	use lease // of the memory: in, peer, maps

	in      *inbox // the peer's immediates; read by the polling goroutine
	rubbish bool   // in is corrupt and no longer read; of the polling goroutine
	wrote   wroteRing

	peer    atomic.Pointer[peer]                  // set once, by Connect
	cause   atomic.Pointer[error]                 // why the endpoint is broken
	closed  atomic.Bool                           // by Close
	posting atomic.Bool                           // a Post is running; for the invariant
	maps    atomic.Pointer[map[uint64]*remoteMap] // by key; replaced under mu, never changed

	last *remoteMap // what the last write went to; of the posting goroutine

	mu       sync.Mutex // guards what follows, and the change of peer, cause, closed, maps
	down     chan struct{}
	cancel   context.CancelFunc // of a running Connect
	target   *identity          // whom Connect was told to reach
	from     *identity          // who has dialed this endpoint
	accepted *conn              // from that dialer
	calls    map[uint64]*mapCall
}

// identity names an endpoint among all of a host.
type identity struct {
	device   name
	endpoint uint32
}

// peer is what a connected endpoint has of its peer.
type peer struct {
	name   name
	conn   *conn // dialed
	bell   *peerBell
	out    *outbox // of the posting goroutine
	once   sync.Once
	attach *attach // of the polling goroutine; nil: the peer's process cannot be named
}

var errEndpointClosed = fmt.Errorf("shm: endpoint %w", rdma.ErrClosed)

func newEndpoint(d *Device, q *queue, in *inbox, onLost func(error)) *Endpoint {
	e := &Endpoint{
		dev: d, queue: q, in: in, onLost: onLost,
		wrote: newWroteRing(),
		down:  make(chan struct{}),
		calls: make(map[uint64]*mapCall),
	}
	e.use.free = e.free
	rand.Read(e.token[:])
	e.maps.Store(&map[uint64]*remoteMap{})
	return e
}

// ID implements rdma.Endpoint.
func (e *Endpoint) ID() uint32 { return e.id }

// Address implements rdma.Endpoint. It holds a secret: whoever has it may connect.
func (e *Endpoint) Address() []byte {
	return address{
		pid: uint32(os.Getpid()), endpoint: e.id, host: e.dev.host, name: e.dev.name, token: e.token,
	}.encode()
}

// Signal implements rdma.LoadStore. Before Connect it does nothing.
func (e *Endpoint) Signal() {
	if p := e.peer.Load(); p != nil {
		p.bell.ring()
	}
}

// err tells why the endpoint cannot be used, or nil.
func (e *Endpoint) err() error {
	if e.closed.Load() {
		return errEndpointClosed
	}
	if cause := e.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// fail breaks the endpoint once: cause is what later calls return, code what the peer hears. It
// reports whether this call was the one that broke it, and whether Connect had succeeded before.
func (e *Endpoint) fail(cause error, code uint8) (first, connected bool) {
	e.mu.Lock()
	if e.closed.Load() || e.cause.Load() != nil {
		e.mu.Unlock()
		return false, false
	}
	e.cause.Store(&cause)
	close(e.down)
	p, accepted := e.peer.Load(), e.accepted
	e.mu.Unlock()
	accepted.hangUp(code)
	if p != nil {
		p.conn.hangUp(code)
	}
	return true, p != nil
}

// lose breaks the endpoint because its peer is gone, and tells its user. If Connect is still running
// or not yet called, its result tells it.
func (e *Endpoint) lose(cause *PeerError) { e.breakUp(cause, codeOK) }

// refused breaks the endpoint because its owner was not let where it wanted to go.
func (e *Endpoint) refused(access error) {
	e.breakUp(fmt.Errorf("shm: connection broken: %w: %w", rdma.ErrPeerLost, access), codeAccess)
}

func (e *Endpoint) breakUp(cause error, code uint8) {
	first, connected := e.fail(cause, code)
	if !first {
		return
	}
	e.dev.log.Info("shm peer lost", zap.Uint32("endpoint", e.id), zap.Error(cause))
	if connected && e.onLost != nil {
		go e.onLost(cause) // the caller may be inside Post, which a Close of the device waits for
	}
}

// Close implements rdma.Endpoint. Memory from Map is gone afterwards, unless another endpoint of the
// device has it too.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed.Swap(true) {
		e.mu.Unlock()
		return nil
	}
	if e.cause.Load() == nil {
		close(e.down)
	}
	if e.cancel != nil {
		e.cancel()
	}
	p, accepted := e.peer.Load(), e.accepted
	e.mu.Unlock()

	e.dev.mu.Lock()
	delete(e.dev.endpoints, e.id)
	e.dev.mu.Unlock()
	e.queue.remove(e)
	accepted.hangUp(codeOK)
	if p != nil {
		p.conn.hangUp(codeOK)
	}
	err := e.in.mem.CloseFile()
	e.use.close() // a Post or Poll under way frees the rest
	return err
}

// free gives the memory back when the endpoint is closed and nobody uses it any more.
func (e *Endpoint) free() {
	_ = e.in.mem.Close()
	if p := e.peer.Load(); p != nil {
		p.free()
	}
	if maps := e.maps.Swap(nil); maps != nil {
		for _, m := range *maps {
			e.dev.unref(m)
		}
	}
}

func (p *peer) free() {
	p.once.Do(func() {
		p.bell.hide()
		_ = p.out.mem.Close()
	})
}

// drain moves completions into cs. Only the queue's poller calls it.
func (e *Endpoint) drain(cs []rdma.Completion) int {
	n := e.wrote.drain(cs, e.id)
	taken := false
	for n < len(cs) && !e.rubbish {
		imm, length, ok, err := e.in.take()
		if err != nil {
			e.rubbish = true
			e.lose(&PeerError{PID: e.peerPID(), State: "sent rubbish: " + err.Error()})
		}
		if !ok {
			break
		}
		cs[n] = rdma.Completion{Kind: rdma.Received, Endpoint: e.id, Imm: imm, Len: length}
		n++
		taken = true
	}
	if taken {
		e.in.release()
	}
	return n
}

// ready tells whether drain would find something. Any goroutine may ask.
func (e *Endpoint) ready() bool {
	return e.wrote.ready() || e.in.ready()
}

func (e *Endpoint) peerPID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepted != nil {
		return e.accepted.pid
	}
	return 0
}

// bind gives the endpoint to an identified dialer, if it is free, and else returns the code to refuse
// with.
func (e *Endpoint) bind(from identity, c *conn) (code uint8) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err() != nil:
		return codeGone
	case e.accepted != nil, e.target != nil && *e.target != from:
		return codeTaken
	}
	e.from, e.accepted = &from, c
	return codeOK
}

// unbind takes back a bind whose dialer could not be served; it may dial again.
func (e *Endpoint) unbind() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.from, e.accepted = nil, nil
}

var errNotConnected = errors.New("shm: endpoint is not connected")

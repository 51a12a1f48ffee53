//go:build linux

package tcp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// endpoint is one end of a connection.
//
// Locks, in this order: the queue's mu, the transmitter's mu. The pairing's mu is taken alone. No
// lock is held while a user's function runs. A lane's descriptor is valid for whoever holds
// the transmitter's mu and finds it not closed, or holds the queue's mu and finds the lane in it.
type endpoint struct {
	dev   *device
	cq    *queue
	id    uint32
	opts  rdma.EndpointOptions
	name  name
	token token

	ctx    context.Context // ends when the endpoint is closed
	cancel context.CancelFunc
	pair   pairing

	label string  // of the connection, for messages; set by start
	lanes []*lane // the open ones; set by start and changed under the queue's mu and tx.mu
	rails *rails  // with several sockets; set by start

	tx   transmitter
	rx   receiver
	dead atomic.Bool // broken or closed: nothing more is read
	told atomic.Bool // OnLost was called, or must not be called any more
}

// lane is one socket of an endpoint.
type lane struct {
	e     *endpoint
	index int
	lead  bool  // the first open one of its endpoint: takes short writes
	slot  int32 // in the queue
	fd    int
	path  string // its two addresses
	relay *relay // under TLS
	out   outLane
	in    inLane
	quiet quiet
}

func newEndpoint(d *device, q *queue, id uint32, opts rdma.EndpointOptions) *endpoint {
	e := &endpoint{dev: d, cq: q, id: id, opts: opts}
	copy(e.name[:], d.half[:])
	_, _ = rand.Read(e.name[8:]) // never fails, see crypto/rand
	_, _ = rand.Read(e.token[:])
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.pair.changed = make(chan struct{}, 1)
	e.tx.e, e.tx.ring = e, make([]posted, d.opts.MaxPosted)
	return e
}

func (e *endpoint) ID() uint32 { return e.id }

func (e *endpoint) Address() []byte {
	a := address{name: e.name, token: e.token, host: e.dev.host, sockets: uint8(e.dev.opts.Sockets)}
	for _, l := range e.dev.listeners {
		ap := netip.MustParseAddrPort(l.Addr().String())
		if ap.Addr().IsLoopback() {
			a.loopback = append(a.loopback, ap)
		} else {
			a.routable = append(a.routable, ap)
		}
	}
	return a.encode()
}

// near reports whether the peer with this address is on the same host.
func (e *endpoint) near(a *address) bool { return a.host != (hostID{}) && a.host == e.dev.host }

// start takes the paired connections for the data path.
func (e *endpoint) start(sockets int) error {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	if e.pair.phase != phaseConnecting {
		return fmt.Errorf("%w: endpoint", rdma.ErrClosed)
	}
	var lanes []*lane
	for i := range sockets {
		l, err := newLane(e, i, e.pair.chosen[i])
		if err != nil {
			for _, l := range lanes {
				l.close()
			}
			return err
		}
		e.pair.chosen[i] = nil
		lanes = append(lanes, l)
	}
	if err := e.attach(lanes); err != nil {
		for _, l := range lanes {
			l.close()
		}
		return err
	}
	e.pair.phase = phaseDone
	return nil
}

// attach makes lanes the endpoint's and has the queue poll and watch them.
func (e *endpoint) attach(lanes []*lane) error {
	e.cq.mu.Lock()
	defer e.cq.mu.Unlock()
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.tx.closed {
		return fmt.Errorf("%w: endpoint", rdma.ErrClosed)
	}
	if err := e.cq.addLocked(lanes); err != nil {
		return err
	}
	e.lanes = lanes
	if lanes[0].lead = true; len(lanes) > 1 {
		e.rails = newRails(len(lanes))
	}
	return nil
}

// Close also sends a farewell if the socket takes it. Writes that the kernel has not taken are
// dropped, and completions that were not polled.
func (e *endpoint) Close() error {
	e.told.Store(true)
	e.dead.Store(true)
	e.dev.forget(e)
	e.cancel()
	e.endPairing(phaseClosed)

	e.cq.mu.Lock()
	defer e.cq.mu.Unlock()
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.tx.closed {
		return nil
	}
	e.cq.removeLocked(e.lanes)
	e.tx.closeLocked()
	for _, l := range e.lanes {
		l.close()
	}
	return nil
}

// fail breaks the endpoint without a word to the peer, and returns cause for the user, which wraps ErrPeerLost.
func (e *endpoint) fail(cause error) error {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	e.tx.breakLocked(cause, 0)
	e.tx.settleLocked()
	return cause
}

// tell calls OnLost, once, without locks.
func (e *endpoint) tell(cause error) {
	if !e.told.Swap(true) && e.opts.OnLost != nil {
		e.opts.OnLost(cause)
	}
}

// lost describes what was seen on a lane.
func (e *endpoint) lost(l *lane, what error) error {
	where := e.label
	if e.rails != nil {
		where = fmt.Sprintf("%s (socket %d)", l.path, l.index)
	}
	return fmt.Errorf("tcp: %s: %w: %w", where, rdma.ErrPeerLost, l.why(what))
}

// why is what ended the lane's connection: what was seen here, or, under TLS, what the relay saw before.
func (l *lane) why(seen error) error {
	if l.relay != nil {
		if err := l.relay.cause(); err != nil {
			return err
		}
	}
	return seen
}

// What the end of a stream means.
var (
	errPeerEnded  = errors.New("connection closed without a farewell (the process ended?)")
	errPeerClosed = errors.New("the peer closed its endpoint")
)

// newLane takes over a paired connection.
func newLane(e *endpoint, index int, p *partner) (*lane, error) {
	l := &lane{e: e, index: index, fd: -1, path: fmt.Sprintf("%v to %v", p.tcp.LocalAddr(), p.tcp.RemoteAddr())}
	if index == 0 {
		e.label = l.path
	}
	if err := keepAlive(p.tcp, e.dev.opts.DeadAfter); err != nil {
		return nil, err
	}
	raw, err := p.tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e.near(e.pair.remote) {
		unpaced(raw) // if it came to an address that is for everybody
		widen(raw)
	}
	if t, ok := p.conn.(*tls.Conn); ok {
		if err := t.SetDeadline(time.Time{}); err != nil {
			return nil, err
		}
		l.relay, l.fd, err = startRelay(t, p.tcp)
		return l, err
	}
	var dupErr error
	if err := raw.Control(func(fd uintptr) {
		l.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	}); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, fmt.Errorf("duplicate the socket: %w", dupErr)
	}
	_ = p.tcp.Close() // the runtime's poller gives it up; the connection lives in fd
	return l, nil
}

// wide is the receive buffer's least, in bytes, on a connection within a host: a few long frames.
const wide = 1 << 20

// widen has the kernel make room for that much at once. Its own way is to begin with 64 KiB and to add while
// the user keeps up, which takes some dozens of long messages; setting the buffer's size would end its growth
// (and be bounded by net.core.rmem_max). A low-water mark makes room for what must be there before the socket
// counts as readable (socket(7), SO_RCVLOWAT); the room stays when the mark is taken back.
func widen(c syscall.RawConn) {
	_ = c.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, wide) == nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1)
		}
	})
}

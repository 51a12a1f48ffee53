package meet

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// Limits of a door, so that strangers cost little and hold nothing for long.
const (
	helloTimeout     = 5 * time.Second // from accept to a whole hello
	handshakeTimeout = 5 * time.Second // from the hello to the introduction
	maxStrangers     = 256             // connections that have not said hello; beyond, the oldest goes
	maxHandshakes    = 1024            // connections between hello and introduction; beyond, refused
	loudStrangers    = 8               // dropped connections that are logged one by one
)

// Badge is what a process knows of its job, and both ends of a connection must know alike.
type Badge struct {
	Key   wire.Key
	Run   wire.RunDigest
	Epoch uint64
}

// NewBadge returns the badge of an epoch of a job.
func NewBadge(secret, runID string, epoch uint64) Badge {
	return Badge{wire.DeriveKey(secret, runID, epoch), wire.DigestRun(runID), epoch}
}

// Arrival is a connection that a door let in.
type Arrival struct {
	Conn  *wire.Conn
	Hello wire.Hello
	ID    wire.Identity
}

// Door accepts connections, lets in those that prove to belong to the job, and hands them over. It
// never waits for one connection while another wants in.
type Door struct {
	Badge
	purpose wire.Purpose
	target  uint32 // the rank that callers must want
	log     *zap.Logger

	// Arrivals delivers connections to whoever receives from it, who owns them then.
	Arrivals chan Arrival

	life    context.Context
	end     context.CancelFunc
	workers sync.WaitGroup

	listeners []net.Listener

	mu         sync.Mutex
	closed     bool
	open       map[net.Conn]struct{} // all connections that are not handed over
	strangers  list.List             // of net.Conn: those that have not said hello, oldest first
	handshakes int
	dropped    int
}

// Open starts to accept on listeners, which the door closes in the end.
func Open(b Badge, purpose wire.Purpose, target uint32, log *zap.Logger, listeners []net.Listener) *Door {
	d := &Door{
		Badge: b, purpose: purpose, target: target, log: log, listeners: listeners,
		Arrivals: make(chan Arrival), open: make(map[net.Conn]struct{}),
	}
	d.life, d.end = context.WithCancel(context.Background())
	for _, l := range listeners {
		d.workers.Go(func() { d.accept(l) })
	}
	return d
}

// Close stops accepting, drops all connections that were not handed over and waits until nothing of
// the door is left.
func (d *Door) Close() {
	d.end()
	for _, l := range d.listeners {
		l.Close()
	}
	d.mu.Lock()
	d.closed = true
	for nc := range d.open {
		nc.Close()
	}
	dropped := d.dropped
	d.mu.Unlock()
	d.workers.Wait()
	if dropped > loudStrangers {
		d.log.Info("dropped connections of strangers", zap.Int("connections", dropped))
	}
}

// accept takes connections off one listener. EINTR and ECONNABORTED are retried by package net; what
// else may be temporary (no file descriptor left) is retried here, after a pause that grows.
func (d *Door) accept(l net.Listener) {
	pause := time.Millisecond
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = time.Millisecond
			if d.enter(nc) {
				d.workers.Go(func() { d.receive(nc) })
			}
			continue
		}
		if d.life.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		d.log.Warn("cannot accept a connection; trying again", zap.Error(err), zap.Duration("pause", pause))
		d.evict()
		select {
		case <-d.life.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// enter notes a new connection.
func (d *Door) enter(nc net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		nc.Close()
		return false
	}
	if d.strangers.Len() >= maxStrangers {
		d.strangers.Remove(d.strangers.Front()).(net.Conn).Close()
	}
	d.open[nc] = struct{}{}
	d.strangers.PushBack(nc)
	return true
}

// evict closes the connection that has been silent for longest.
func (d *Door) evict() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if oldest := d.strangers.Front(); oldest != nil {
		d.strangers.Remove(oldest).(net.Conn).Close()
	}
}

// receive leads one connection through the handshake and hands it over.
func (d *Door) receive(nc net.Conn) {
	a, err := d.handshake(nc)
	d.mu.Lock()
	delete(d.open, nc)
	if err != nil {
		d.dropped++
	}
	loud := err != nil && d.dropped <= loudStrangers && !d.closed
	d.mu.Unlock()
	if err == nil {
		select {
		case d.Arrivals <- a: // it is the receiver's now
			return
		case <-d.life.Done():
		}
	}
	nc.Close()
	if loud {
		d.log.Info("dropped a connection", zap.Stringer("from", nc.RemoteAddr()), zap.Error(err))
	}
}

func (d *Door) handshake(nc net.Conn) (Arrival, error) {
	nc.SetDeadline(time.Now().Add(helloTimeout))
	pending, hello, err := wire.ReadHello(nc)
	d.acquainted(nc)
	var other *wire.Refused
	switch {
	case errors.As(err, &other):
		wire.Refuse(nc, other.Code)
		return Arrival{}, errors.New("it speaks another protocol version")
	case err != nil:
		return Arrival{}, err
	}
	nc.SetDeadline(time.Now().Add(handshakeTimeout))
	if code, why := d.screen(hello); why != nil {
		wire.Refuse(nc, code)
		return Arrival{}, why
	}
	defer d.leave()
	conn, err := pending.Admit(d.Key)
	if err != nil {
		return Arrival{}, err
	}
	f, err := conn.Receive()
	if err != nil {
		return Arrival{}, err
	}
	if f.Type != wire.Introduce {
		return Arrival{}, errors.New("it did not introduce itself")
	}
	id, err := wire.ParseIdentity(f.Payload)
	if err != nil {
		return Arrival{}, err
	}
	nc.SetDeadline(time.Time{})
	return Arrival{conn, hello, id}, nil
}

// acquainted notes that a connection is no stranger any more, or gone.
func (d *Door) acquainted(nc net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := d.strangers.Front(); e != nil; e = e.Next() {
		if e.Value == nc {
			d.strangers.Remove(e)
			return
		}
	}
}

// screen decides by a hello whether a handshake is worth its cost. If so, leave must follow.
func (d *Door) screen(h wire.Hello) (wire.Code, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.Run != d.Run:
		return wire.OtherRun, errors.New("it belongs to another job (run id differs)")
	case h.Epoch != d.Epoch:
		return wire.OtherEpoch, errors.New("it belongs to another epoch of this job")
	case h.Purpose != d.purpose || h.Target != d.target:
		return wire.OtherTarget, errors.New("it wants another rank")
	case d.handshakes >= maxHandshakes:
		return wire.Busy, errors.New("too many handshakes at a time")
	}
	d.handshakes++
	return 0, nil
}

func (d *Door) leave() {
	d.mu.Lock()
	d.handshakes--
	d.mu.Unlock()
}

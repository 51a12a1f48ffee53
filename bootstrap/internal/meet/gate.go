package meet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// Limits of a gate, so that strangers cost little and hold nothing for long.
const (
	helloTimeout     = 5 * time.Second // from accept to a whole hello
	handshakeTimeout = 5 * time.Second // from the hello to the introduction
	maxStrangers     = 256             // connections that have not said hello; beyond, the oldest goes
	maxHandshakes    = 1024            // connections between hello and introduction; beyond, refused
	loudStrangers    = 8               // dropped connections that are logged one by one
)

// Gate accepts connections and hands each to the door that it wants. It never waits for one connection
// while another wants in.
type Gate struct {
	log *zap.Logger

	life    context.Context
	end     context.CancelFunc
	workers sync.WaitGroup

	listeners []net.Listener

	mu         sync.Mutex
	closed     bool
	doors      []*Door
	left       []departure           // doors that were left
	open       map[net.Conn]struct{} // all connections that are not handed over
	strangers  list.List             // of net.Conn: those that have not said hello, oldest first
	handshakes int
	dropped    int
	known      []Stranger
}

// NewGate starts to accept on listeners, which the gate closes in the end.
func NewGate(log *zap.Logger, listeners []net.Listener) *Gate {
	g := newGate(log, listeners)
	g.start()
	return g
}

func newGate(log *zap.Logger, listeners []net.Listener) *Gate {
	g := &Gate{log: log, listeners: listeners, open: make(map[net.Conn]struct{})}
	g.life, g.end = context.WithCancel(context.Background())
	return g
}

func (g *Gate) start() {
	for _, l := range g.listeners {
		g.workers.Go(func() { g.accept(l) })
	}
}

// Close stops accepting, drops all connections that were not handed over and waits until nothing of
// the gate is left.
func (g *Gate) Close() {
	g.end()
	for _, l := range g.listeners {
		l.Close()
	}
	g.mu.Lock()
	g.closed = true
	for nc := range g.open {
		nc.Close()
	}
	dropped := g.dropped
	g.mu.Unlock()
	g.workers.Wait()
	if dropped > loudStrangers {
		g.log.Info("dropped connections of strangers", zap.Int("connections", dropped))
	}
}

// accept takes connections off one listener. EINTR and ECONNABORTED are retried by package net; what
// else may be temporary (no file descriptor left) is retried here, after a pause that grows.
func (g *Gate) accept(l net.Listener) {
	pause := time.Millisecond
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = time.Millisecond
			if g.enter(nc) {
				g.workers.Go(func() { g.receive(nc) })
			}
			continue
		}
		if g.life.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		g.log.Warn("cannot accept a connection; trying again", zap.Error(err), zap.Duration("pause", pause))
		g.evict()
		select {
		case <-g.life.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// enter notes a new connection.
func (g *Gate) enter(nc net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		nc.Close()
		return false
	}
	if g.strangers.Len() >= maxStrangers {
		g.strangers.Remove(g.strangers.Front()).(net.Conn).Close()
	}
	g.open[nc] = struct{}{}
	g.strangers.PushBack(nc)
	return true
}

// evict closes the connection that has been silent for longest.
func (g *Gate) evict() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if oldest := g.strangers.Front(); oldest != nil {
		g.strangers.Remove(oldest).(net.Conn).Close()
	}
}

// receive leads one connection through the handshake and hands it over.
func (g *Gate) receive(nc net.Conn) {
	a, d, err := g.handshake(nc)
	g.mu.Lock()
	delete(g.open, nc)
	if err != nil {
		g.dropped++
	}
	loud := err != nil && g.dropped <= loudStrangers && !g.closed
	g.mu.Unlock()
	if err == nil {
		select {
		case d.Arrivals <- a: // it is the receiver's now
			return
		case <-d.closed:
		case <-g.life.Done():
		}
	}
	nc.Close()
	if loud {
		g.log.Info("dropped a connection", zap.Stringer("from", nc.RemoteAddr()), zap.Error(err))
	}
}

func (g *Gate) handshake(nc net.Conn) (Arrival, *Door, error) {
	nc.SetDeadline(time.Now().Add(helloTimeout))
	pending, hello, err := wire.ReadHello(nc)
	g.acquainted(nc)
	var other *wire.Refused
	switch {
	case errors.As(err, &other):
		wire.Refuse(nc, *other)
		return Arrival{}, nil, errors.New("it speaks another protocol version")
	case err != nil:
		return Arrival{}, nil, err
	}
	nc.SetDeadline(time.Now().Add(handshakeTimeout))
	d, refused, why := g.screen(hello)
	if why != nil {
		g.remember(nc, hello, why)
		wire.Refuse(nc, refused)
		return Arrival{}, nil, why
	}
	defer g.leave()
	conn, err := pending.Admit(d.Key)
	if err != nil {
		g.remember(nc, hello, suspect(err))
		return Arrival{}, nil, err
	}
	f, err := conn.Receive()
	if err != nil {
		return Arrival{}, nil, err
	}
	if f.Type != wire.Introduce {
		return Arrival{}, nil, errors.New("it did not introduce itself")
	}
	id, err := wire.ParseIdentity(f.Payload)
	if err != nil {
		return Arrival{}, nil, err
	}
	nc.SetDeadline(time.Time{})
	return Arrival{conn, hello, id}, d, nil
}

// acquainted notes that a connection is no stranger any more, or gone.
func (g *Gate) acquainted(nc net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for e := g.strangers.Front(); e != nil; e = e.Next() {
		if e.Value == nc {
			g.strangers.Remove(e)
			return
		}
	}
}

// screen finds the door that a hello wants and decides whether a handshake is worth its cost. If so,
// leave must follow.
func (g *Gate) screen(h wire.Hello) (*Door, wire.Refused, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	refused, why := wire.Refused{Code: wire.OtherRun}, errors.New("it belongs to another job (run id differs)")
	if slices.Contains(g.left, departure{h.Run, h.Epoch, h.Purpose, h.Target}) {
		refused.Code, why = wire.Left, errors.New("it wants a rank that has left")
	}
	for _, d := range g.doors {
		switch {
		case h.Run != d.Run:
		case h.Epoch != d.Epoch:
			refused = wire.Refused{Code: wire.OtherEpoch, Epoch: d.Epoch}
			why = fmt.Errorf("it belongs to epoch %d of this job, not %d", h.Epoch, d.Epoch)
		case h.Purpose != d.purpose || h.Target != d.target:
			refused.Code, why = wire.OtherTarget, errors.New("it wants another rank")
		case g.handshakes >= maxHandshakes:
			return nil, wire.Refused{Code: wire.Busy}, errors.New("too many handshakes at a time")
		default:
			g.handshakes++
			return d, wire.Refused{}, nil
		}
	}
	return nil, refused, why
}

func (g *Gate) leave() {
	g.mu.Lock()
	g.handshakes--
	g.mu.Unlock()
}

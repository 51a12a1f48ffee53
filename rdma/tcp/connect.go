//go:build linux

package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gccl/gccl/rdma"
)

// followDelay is how long the end that does not lead waits to be dialled before it dials too. The
// leader's dial is the usual way; the other is for networks that let one direction through, and for
// peers that have not called Connect yet.
const followDelay = 20 * time.Millisecond

// phase is how far an endpoint's pairing is.
type phase uint8

const (
	phaseFresh      phase = iota // Connect not called; the peer may have dialled already
	phaseConnecting              // in Connect
	phaseDone                    // Connect has returned, with or without an error
	phaseClosed
)

// pairing collects the connections of an endpoint until Connect takes them.
//
// Of all connections that the two ends make, the leader (the end with the lower name) chooses one
// per socket, under its mu, and says so on it. The other end takes what it is told.
type pairing struct {
	mu      sync.Mutex
	phase   phase
	remote  *address // once Connect was called
	chosen  [maxSockets]*partner
	early   []*partner    // who dialled before Connect says who the peer is
	changed chan struct{} // has a token after a change of chosen or phase
}

// partner is a chosen connection.
type partner struct {
	conn   net.Conn // *net.TCPConn or *tls.Conn
	tcp    *net.TCPConn
	dialed bool
	g      *greeted // if accepted
}

// earlyMost bounds the connections that wait for Connect.
const earlyMost = 16 * maxSockets

func (p *pairing) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// answer is the accepting side of a handshake, up to the choice.
func (d *device) answer(c *net.TCPConn) error {
	stop := context.AfterFunc(d.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	conn, exporter, err := d.secure(c, "")
	if err != nil {
		return fmt.Errorf("%w: %w", errStranger, err)
	}
	var e *endpoint
	g, err := greet(conn, exporter, d.keys(), func(h *hello) (token, error) {
		if e = d.lookup(h.to); e == nil {
			return token{}, fmt.Errorf("%w: asks for endpoint %v, which is not here", errStranger, h.to)
		}
		d.door.leave(c)
		return e.token, c.SetDeadline(time.Now().Add(pairTimeout))
	})
	if err != nil {
		return err
	}
	lead := e.name.compare(g.hello.from) < 0
	if !lead {
		if err := readChoice(conn); err != nil {
			return err
		}
	}
	if !stop() {
		return errDeviceClosed
	}
	return e.take(int(g.hello.socket), &partner{conn: conn, tcp: c, g: g}, func() error {
		if !lead {
			return nil
		}
		_, err := conn.Write(choiceText)
		return err
	})
}

// take makes p the connection of a socket if there is none yet and say succeeds, which tells the
// peer if it must be told.
func (e *endpoint) take(socket int, p *partner, say func() error) error {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	switch {
	case e.pair.phase == phaseFresh:
		return e.pair.keepLocked(p, say)
	case e.pair.phase >= phaseDone:
		return errors.New("endpoint is connected or closed")
	case e.pair.chosen[socket] != nil:
		return errors.New("endpoint has a connection already")
	case p.g != nil && e.pair.remote != nil && !e.isPeer(p.g, e.pair.remote):
		return fmt.Errorf("%w: endpoint %v is not who this one is to be connected with", errStranger, p.g.hello.from)
	}
	if err := say(); err != nil {
		return err
	}
	e.pair.chosen[socket] = p
	e.pair.notify()
	return nil
}

// keepLocked makes p the connection of its socket in case Connect will be called for its end. Others may have
// come before it: who is the one, nobody knows.
func (q *pairing) keepLocked(p *partner, say func() error) error {
	for _, o := range q.early {
		if o.g.hello.from == p.g.hello.from && o.g.hello.socket == p.g.hello.socket {
			return errors.New("endpoint has a connection already")
		}
	}
	if len(q.early) >= earlyMost {
		return fmt.Errorf("%w: %d connections wait for this endpoint already", errStranger, len(q.early))
	}
	if err := say(); err != nil {
		return err
	}
	q.early = append(q.early, p)
	return nil
}

// isPeer tells whether an accepted connection is from the endpoint with this address.
func (e *endpoint) isPeer(g *greeted, a *address) bool {
	return g.hello.from == a.name && g.ownProved(e.dev.keys(), a.token) && g.hello.sockets == e.sockets(a)
}

// sockets is how many sockets both ends will use.
func (e *endpoint) sockets(a *address) uint8 { return min(uint8(e.dev.opts.Sockets), a.sockets) }

// Connect dials the peer and waits to be dialled by it. It does not wait for the peer's Connect, but
// for its process to be reachable.
func (e *endpoint) Connect(ctx context.Context, remote []byte) error {
	a, err := parseAddress(remote)
	if err != nil {
		return err
	}
	if a.name == e.name {
		return errors.New("tcp: an endpoint cannot be connected to itself")
	}
	if err := e.beginConnect(a); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	err = e.pairUp(ctx, a)
	if err == nil {
		err = e.start(int(e.sockets(a)))
	}
	if err == nil {
		return nil
	}
	e.endPairing(phaseDone)
	if e.ctx.Err() != nil {
		return fmt.Errorf("tcp: connect: %w: endpoint", rdma.ErrClosed)
	}
	return fmt.Errorf("tcp: connect: %w", err)
}

// beginConnect notes the peer's address, takes its connections that came early, and drops those of others.
func (e *endpoint) beginConnect(a *address) error {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	switch e.pair.phase {
	case phaseFresh:
	case phaseClosed:
		return fmt.Errorf("tcp: connect: %w: endpoint", rdma.ErrClosed)
	default:
		return errors.New("tcp: connect: called twice")
	}
	e.pair.phase = phaseConnecting
	e.pair.remote = a
	for _, p := range e.pair.early {
		if e.isPeer(p.g, a) {
			e.pair.chosen[p.g.hello.socket] = p
		} else {
			_ = p.tcp.Close()
		}
	}
	e.pair.early = nil
	return nil
}

// endPairing closes what Connect did not take.
func (e *endpoint) endPairing(to phase) {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	if e.pair.phase < to {
		e.pair.phase = to
	}
	for i, p := range e.pair.chosen {
		if p != nil {
			_ = p.tcp.Close()
			e.pair.chosen[i] = nil
		}
	}
	for _, p := range e.pair.early {
		_ = p.tcp.Close()
	}
	e.pair.early = nil
	e.pair.notify()
}

// pairUp returns when every socket has its connection. Who dialled the first dials the others.
func (e *endpoint) pairUp(ctx context.Context, a *address) error {
	first := &dial{e: e, to: a, socket: 0}
	if e.name.compare(a.name) > 0 {
		first.delay = followDelay
	}
	if err := e.getSockets(ctx, first); err != nil {
		return err
	}
	chosen := e.partner(0)
	if chosen == nil {
		return fmt.Errorf("%w: endpoint", rdma.ErrClosed) // meanwhile
	}
	var rest []*dial
	for s := 1; s < int(e.sockets(a)); s++ {
		d := &dial{e: e, to: a, socket: s}
		if !chosen.dialed {
			d.delay = -1
		}
		rest = append(rest, d)
	}
	return e.getSockets(ctx, rest...)
}

func (e *endpoint) partner(socket int) *partner {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	return e.pair.chosen[socket]
}

// getSockets runs the dials until each has a connection, its own or an accepted one.
func (e *endpoint) getSockets(ctx context.Context, ds ...*dial) error {
	if len(ds) == 0 {
		return nil
	}
	dialCtx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, d := range ds {
		wg.Go(func() { d.run(dialCtx) })
	}
	for {
		missing := 0
		for _, d := range ds {
			if e.partner(d.socket) == nil {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-e.pair.changed:
		case <-ctx.Done():
			cancel()
			wg.Wait()
			return e.explain(ctx, ds)
		}
	}
}

// explain says what was tried.
func (e *endpoint) explain(ctx context.Context, ds []*dial) error {
	var tried []string
	for _, d := range ds {
		tried = append(tried, d.report()...)
	}
	var here []string
	for _, l := range e.dev.listeners {
		here = append(here, l.Addr().String())
	}
	return fmt.Errorf("%w: endpoint %v of the peer was not reached: %s; and nobody came to %s",
		context.Cause(ctx), ds[0].to.name, strings.Join(tried, "; "), strings.Join(here, ", "))
}

//go:build linux

package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
)

const (
	// helloTimeout is how long somebody who has connected may take to say whom he wants.
	helloTimeout = 3 * time.Second
	// pairTimeout bounds the rest of a handshake with somebody who named an endpoint of ours.
	pairTimeout = 10 * time.Second
	// maxUnknown is how many connections may be waiting for their hello. One more, and the oldest is
	// dropped: a peer dials again.
	maxUnknown = 128
)

// listen opens a listener on every local address, all on the same port if that is free everywhere.
func (d *device) listen() error {
	port := 0
	for _, a := range d.locals {
		l, err := d.listenOn(a.prefix.Addr(), port)
		if err != nil {
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				continue // an address that is tentative or just went away
			}
			for _, l := range d.listeners {
				_ = l.Close()
			}
			return err
		}
		port = l.Addr().(*net.TCPAddr).Port
		d.listeners = append(d.listeners, l)
	}
	if len(d.listeners) == 0 {
		return fmt.Errorf("tcp: none of the addresses %v can be listened on", d.locals)
	}
	return nil
}

// listenOn tries the wanted port first, then any that the options allow.
func (d *device) listenOn(ip netip.Addr, want int) (net.Listener, error) {
	try := func(port int) (net.Listener, error) {
		return listenTCP(netip.AddrPortFrom(ip, uint16(port)))
	}
	if want != 0 {
		if l, err := try(want); !errors.Is(err, syscall.EADDRINUSE) {
			return l, wrapListen(ip, err)
		}
	}
	if d.opts.PortMin == 0 {
		l, err := try(0)
		return l, wrapListen(ip, err)
	}
	for port := d.opts.PortMin; port <= d.opts.PortMax; port++ {
		if l, err := try(port); !errors.Is(err, syscall.EADDRINUSE) {
			return l, wrapListen(ip, err)
		}
	}
	return nil, fmt.Errorf("tcp: listen on %v: all ports %d-%d are in use: %w", ip, d.opts.PortMin, d.opts.PortMax, syscall.EADDRINUSE)
}

func wrapListen(ip netip.Addr, err error) error {
	if err != nil {
		return fmt.Errorf("tcp: listen on %v: %w", ip, err)
	}
	return nil
}

// accept serves one listener until it is closed.
func (d *device) accept(l net.Listener) {
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			go d.serve(c.(*net.TCPConn))
		case d.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // no descriptors left, for example: others may close some
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			d.opts.Log.Warn("accept failed", zap.Stringer("listener", l.Addr()), zap.Error(err))
			select {
			case <-time.After(pause):
			case <-d.ctx.Done():
				return
			}
		}
	}
}

// door knows the connections that have not said yet what they want, and counts strangers.
type door struct {
	strangers atomic.Uint64

	mu      sync.Mutex
	closed  bool
	waiting map[*net.TCPConn]uint64 // number of arrival
	arrived uint64
}

// enter admits c until leave; it drops the oldest if there are too many.
func (o *door) enter(c *net.TCPConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if len(o.waiting) >= maxUnknown {
		oldest := c
		first := o.arrived
		for w, n := range o.waiting {
			if n < first {
				oldest, first = w, n
			}
		}
		delete(o.waiting, oldest)
		_ = oldest.Close()
	}
	o.waiting[c] = o.arrived
	o.arrived++
	return true
}

func (o *door) leave(c *net.TCPConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waiting, c)
}

// shut closes those who wait.
func (o *door) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.waiting {
		_ = c.Close()
	}
}

// serve pairs an accepted connection with the endpoint that it asks for, or drops it.
func (d *device) serve(c *net.TCPConn) {
	if !d.door.enter(c) {
		_ = c.Close()
		return
	}
	err := d.answer(c)
	d.door.leave(c)
	if err == nil {
		return
	}
	_ = c.Close()
	if errors.Is(err, errStranger) {
		n := d.door.strangers.Add(1)
		if n&(n-1) == 0 { // the 1st, 2nd, 4th, 8th …
			d.opts.Log.Warn("dropped a stranger", zap.Stringer("from", c.RemoteAddr()), zap.Uint64("so far", n), zap.Error(err))
		}
	}
}

//go:build linux

package tcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sort"
	"sync"
	"time"
)

const (
	// dialStagger is the head start that a candidate has over the next one. RFC 8305 recommends
	// 250 ms between addresses of one web server; here most candidates are on the same network.
	dialStagger = 25 * time.Millisecond
	// The pause between two attempts at one candidate doubles from the first to the last.
	firstPause, lastPause = 10 * time.Millisecond, time.Second
)

// dial is the search for one socket's connection.
type dial struct {
	e      *endpoint
	to     *address
	socket int
	delay  time.Duration // before the first attempt; negative: never

	mu   sync.Mutex
	last map[netip.AddrPort]error // what the latest attempt at a candidate saw
}

// run tries all candidates until the socket has a connection or ctx ends.
func (d *dial) run(ctx context.Context) {
	if d.delay < 0 || !sleep(ctx, d.delay) {
		return
	}
	var wg sync.WaitGroup
	for i, c := range d.candidates() {
		wg.Go(func() {
			if !sleep(ctx, time.Duration(i)*dialStagger) {
				return
			}
			for pause := firstPause; ctx.Err() == nil && d.e.partner(d.socket) == nil; pause = min(2*pause, lastPause) {
				err := d.attempt(ctx, c)
				if err == nil {
					return
				}
				d.note(ctx, c, err)
				if !sleep(ctx, pause) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// sleep tells whether the time passed before ctx ended.
func sleep(ctx context.Context, t time.Duration) bool {
	if t == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// note remembers an error. One that comes after the end of ctx may say no more than that, and replaces none.
func (d *dial) note(ctx context.Context, c netip.AddrPort, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil && d.last[c] != nil {
		return
	}
	if d.last == nil {
		d.last = map[netip.AddrPort]error{}
	}
	d.last[c] = err
}

// report lists the candidates with what the latest attempts saw.
func (d *dial) report() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, c := range d.candidates() {
		if err := d.last[c]; err != nil {
			out = append(out, fmt.Sprintf("%v: %v", c, err))
		} else {
			out = append(out, fmt.Sprintf("%v: not tried", c))
		}
	}
	if len(out) == 0 {
		out = append(out, "it advertises nothing but loopback, and is on another host")
	}
	return out
}

// candidates returns what to dial: the loopback of a peer on this host, then addresses on a network
// that this host is on, then the others.
func (d *dial) candidates() []netip.AddrPort {
	var out []netip.AddrPort
	if d.e.near(d.to) {
		out = append(out, d.to.loopback...)
	}
	near := func(c netip.AddrPort) bool {
		for _, l := range d.e.dev.locals {
			if !l.loopback && l.prefix.Contains(c.Addr()) {
				return true
			}
		}
		return false
	}
	routable := append([]netip.AddrPort(nil), d.to.routable...)
	sort.SliceStable(routable, func(i, j int) bool { return near(routable[i]) && !near(routable[j]) })
	return append(out, routable...)
}

// attempt dials one candidate and pairs with it. It returns nil when the socket has a connection,
// this one or another.
func (d *dial) attempt(ctx context.Context, to netip.AddrPort) error {
	dialer := newDialer(d.e.near(d.to))
	c, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	conn := c.(*net.TCPConn)
	if err := d.greet(ctx, conn, to); err != nil {
		_ = conn.Close()
		if d.e.partner(d.socket) != nil {
			return nil
		}
		return err
	}
	return nil
}

// greet is the dialler's side of a handshake on a fresh connection.
func (d *dial) greet(ctx context.Context, c *net.TCPConn, to netip.AddrPort) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(pairTimeout)); err != nil {
		return err
	}
	if c.LocalAddr().String() == c.RemoteAddr().String() {
		return fmt.Errorf("connected to itself") // simultaneous open with a free port of the ephemeral range
	}
	e := d.e
	conn, exporter, err := e.dev.secure(c, to.Addr().String())
	if err != nil {
		return err
	}
	h := &hello{to: d.to.name, from: e.name, socket: uint8(d.socket), sockets: e.sockets(d.to)}
	proof, err := introduce(conn, exporter, e.dev.keys(), h, d.to.token, e.token)
	if err != nil {
		return err
	}
	p := &partner{conn: conn, tcp: c, dialed: true}
	if e.name.compare(d.to.name) < 0 { // this end leads
		if !stop() {
			return context.Cause(ctx)
		}
		return e.take(d.socket, p, func() error {
			_, err := conn.Write(append(proof, choiceText...))
			return err
		})
	}
	if _, err := conn.Write(proof); err != nil {
		return err
	}
	if err := readChoice(conn); err != nil {
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return e.take(d.socket, p, func() error { return nil })
}

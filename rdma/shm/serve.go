//go:build linux

package shm

import (
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"go.uber.org/zap"
)

const (
	// handshakePatience is how long a dialer may take to identify itself. A peer that was too slow
	// dials again, until its context ends.
	handshakePatience = 2 * time.Second
	// maxHandshakes bounds the connections that have not yet identified themselves; more wait in the
	// listener's queue.
	maxHandshakes = 128
)

// accept serves the listener until it is closed.
func (d *Device) accept() {
	slots := make(chan struct{}, maxHandshakes)
	for {
		slots <- struct{}{}
		uc, err := d.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely: dialers wait in the queue meanwhile
			d.log.Warn("shm listener", zap.Error(err))
			time.Sleep(10 * time.Millisecond) // accept fails at once until descriptors are free
			<-slots
			continue
		}
		go d.serve(uc, func() { <-slots })
	}
}

// serve is the listener's part of the talk in message.go. identified is called once, when the
// dialer has shown who it is or was dropped.
func (d *Device) serve(uc *net.UnixConn, identified func()) {
	_ = uc.SetDeadline(time.Now().Add(handshakePatience))
	c, err := newConn(uc)
	if err != nil {
		d.dropStranger(uc, err)
		identified()
		return
	}
	if !d.track(c) {
		c.close()
		identified()
		return
	}
	defer d.untrack(c)
	e, err := d.identify(c)
	identified()
	if err != nil {
		d.dropStranger(uc, err)
		return
	}
	if e == nil {
		c.close()
		return
	}
	_ = uc.SetDeadline(time.Time{})
	for {
		m, _, err := c.receive(0)
		if err != nil {
			e.endOf(c, err)
			return
		}
		switch m.kind {
		case mapRegion:
			_ = uc.SetWriteDeadline(time.Now().Add(sendPatience))
			if err := d.answerMap(c, &m); err != nil {
				e.endOf(c, err)
				return
			}
		case bye:
			e.lose(farewell(c.pid, m.code))
		default:
			e.endOf(c, errors.New("message out of turn"))
			return
		}
	}
}

// identify greets a dialer and binds it to the endpoint that it proves to know. An error means that
// it is a stranger; no error and no endpoint, that a peer was refused.
func (d *Device) identify(c *conn) (*Endpoint, error) {
	greeting := message{kind: hello}
	rand.Read(greeting.nonce[:])
	if err := c.send(&greeting); err != nil {
		return nil, err
	}
	ask, _, err := c.receive(0)
	if err != nil {
		return nil, err
	}
	if ask.kind != open {
		return nil, errors.New("message out of turn")
	}
	// From here on a lapse would end the endpoint, not only this try: time that passed while this
	// process did not run must not count.
	_ = c.unix.SetDeadline(time.Now().Add(sendPatience))
	d.mu.Lock()
	e := d.endpoints[ask.endpoint]
	d.mu.Unlock()
	if e == nil {
		_ = c.send(&message{kind: refused, code: codeGone})
		return nil, nil
	}
	if !sameProof(ask.proof, prove(e.token, open, greeting.nonce, &ask)) {
		_ = c.send(&message{kind: refused, code: codeProof})
		return nil, errors.New("does not know the endpoint's token")
	}
	return d.welcome(c, e, &ask, greeting.nonce), nil
}

// welcome binds an identified dialer to e and sends it the bell and the completion ring. It returns nil
// if that failed; the dialer knows why.
func (d *Device) welcome(c *conn, e *Endpoint, ask *message, nonce [16]byte) *Endpoint {
	if code := e.bind(identity{ask.name, ask.from}, c); code != codeOK {
		_ = c.send(&message{kind: refused, code: code})
		return nil
	}
	fds, err := dupAll(d.bellMem, e.in.mem)
	if err != nil {
		d.log.Warn("shm connection put off", zap.Error(err))
		e.unbind()
		_ = c.send(&message{kind: refused, code: codeResource})
		return nil
	}
	defer closeAll(fds)
	answer := message{kind: opened, depth: uint32(e.in.depth()), proof: prove(e.token, opened, nonce, ask)}
	if err := c.send(&answer, fds...); err != nil {
		e.endOf(c, err)
		return nil
	}
	_ = e.in.mem.CloseFile() // nobody else will ask for it
	return e
}

// dupAll returns new descriptors of all blocks or none.
func dupAll(blocks ...*hostmem.Block) ([]int, error) {
	var fds []int
	for _, block := range blocks {
		fd, err := block.Dup()
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// answerMap sends the descriptor of a region to a peer that knows its key.
func (d *Device) answerMap(c *conn, ask *message) error {
	d.mu.Lock()
	r := d.regions[ask.key]
	d.mu.Unlock()
	answer := message{kind: mapped, key: ask.key, code: codeAccess}
	if r == nil || ask.length > uint64(len(r.b)) {
		return c.send(&answer)
	}
	fd, err := r.mem.Dup()
	switch {
	case errors.Is(err, hostmem.ErrClosed):
		return c.send(&answer)
	case err != nil:
		answer.code = codeResource
		return c.send(&answer)
	}
	defer closeAll([]int{fd})
	answer.code, answer.length = codeOK, uint64(len(r.b))
	return c.send(&answer, fd)
}

func (d *Device) dropStranger(uc *net.UnixConn, err error) {
	_ = uc.Close()
	n := d.strangers.Add(1)
	if n&(n-1) == 0 { // the 1st, 2nd, 4th, …: noise does not fill the log
		d.log.Warn("shm connection dropped", zap.Uint64("dropped", n), zap.Error(err))
	}
}

func (d *Device) track(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.conns[c] = struct{}{}
	return true
}

func (d *Device) untrack(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

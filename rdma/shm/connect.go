//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// Connect implements rdma.Endpoint. The peer's listener is older than its address, so where both
// ends see the same sockets, a listener that is not there means that the peer is lost, at once. A
// busy peer is tried again until ctx ends.
func (e *Endpoint) Connect(ctx context.Context, remote []byte) error {
	addr, err := decodeAddress(remote)
	if err != nil {
		return err
	}
	if err := e.dev.host.reaches(addr.host); err != nil {
		return err
	}
	ctx, err = e.beginConnect(ctx, identity{addr.name, addr.endpoint})
	if err != nil {
		return err
	}
	p, err := e.reach(ctx, addr)
	e.mu.Lock()
	e.cancel()
	e.cancel = nil
	if err == nil {
		err = e.err() // closed or lost meanwhile
	} else if broken := e.err(); broken != nil {
		err = broken
	} else {
		e.target = nil // may be tried again
	}
	if err == nil {
		e.peer.Store(p)
	}
	e.mu.Unlock()
	if err != nil {
		if p != nil {
			p.conn.close()
			p.free()
		}
		return err
	}
	go e.watch(p)
	return nil
}

func (e *Endpoint) beginConnect(ctx context.Context, target identity) (context.Context, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err() != nil:
		return nil, e.err()
	case e.target != nil:
		return nil, errors.New("shm: endpoint is connected or connecting already")
	case e.from != nil && *e.from != target:
		return nil, fmt.Errorf("shm: pid %d has connected to this endpoint from another one than "+
			"the address names: the two ends do not agree who is paired", e.accepted.pid)
	}
	ctx, e.cancel = context.WithCancel(ctx)
	e.target = &target
	return ctx, nil
}

// errRetry marks what may succeed later.
var errRetry = errors.New("try again")

// reach dials until it works, cannot work, or ctx ends.
func (e *Endpoint) reach(ctx context.Context, addr address) (*peer, error) {
	const firstPause, longestPause = time.Millisecond, 50 * time.Millisecond
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		p, err := e.dial(ctx, addr)
		if err == nil {
			return p, nil
		}
		if ctx.Err() == nil && errors.Is(err, errRetry) {
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("shm: connect to endpoint %d of pid %d: %w (last try: %v)", addr.endpoint, addr.pid, context.Cause(ctx), err)
		}
		return nil, err
	}
}

func (e *Endpoint) dial(ctx context.Context, addr address) (*peer, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unixpacket", addr.name.path())
	if err != nil {
		return nil, e.dialError(addr, err)
	}
	uc, ok := raw.(*net.UnixConn)
	if !ok {
		_ = raw.Close()
		return nil, fmt.Errorf("shm: dialed a %T", raw)
	}
	c, err := newConn(uc)
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("shm: connect to pid %d: %w: %w", addr.pid, rdma.ErrUnavailable, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = uc.SetDeadline(time.Unix(1, 0)) })
	p, err := e.handshake(c, addr)
	if !stop() && err == nil {
		p.free()
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return p, nil
}

// dialError sorts the errors of connect(2) on a Unix socket.
func (e *Endpoint) dialError(addr address, err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN): // the listener's queue is full
		return fmt.Errorf("%w: %w", errRetry, err)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("shm: connect to pid %d: %w", addr.pid, err)
	case e.dev.host.netns == 0 || addr.host.netns == 0:
		return fmt.Errorf("%w: nobody listens; the peer has closed its device, or runs in another network "+
			"namespace, which abstract sockets do not cross: %w", errRetry, err)
	}
	pid := int(addr.pid)
	if e.dev.host.pidns != addr.host.pidns {
		pid = 0
	}
	state, _ := processState(pid)
	return &PeerError{PID: pid, State: state + " and its device does not listen"}
}

// handshake is the dialer's part of the talk in message.go, up to opened.
func (e *Endpoint) handshake(c *conn, addr address) (*peer, error) {
	greeting, _, err := c.receive(0)
	if err != nil {
		return nil, handshakeError(c, err)
	}
	if greeting.kind != hello {
		return nil, fmt.Errorf("shm: pid %d greets with message %d", c.pid, greeting.kind)
	}
	ask := message{kind: open, endpoint: addr.endpoint, from: e.id, name: e.dev.name}
	rand.Read(ask.nonce[:])
	ask.proof = prove(addr.token, open, greeting.nonce, &ask)
	if err := c.send(&ask); err != nil {
		return nil, handshakeError(c, err)
	}
	answer, fds, err := c.receive(2)
	if err != nil {
		return nil, handshakeError(c, err)
	}
	defer closeAll(fds)
	if answer.kind == refused {
		return nil, refusal(c.pid, answer.code)
	}
	if answer.kind != opened || len(fds) != 2 || !validDepth(answer.depth) {
		return nil, fmt.Errorf("shm: pid %d answers with message %d and %d descriptors", c.pid, answer.kind, len(fds))
	}
	if !sameProof(answer.proof, prove(addr.token, opened, greeting.nonce, &ask)) {
		return nil, fmt.Errorf("shm: pid %d does not know the endpoint's token: %w", c.pid, rdma.ErrAccess)
	}
	bell, err := showBell(fds[0])
	if err != nil {
		return nil, fmt.Errorf("shm: bell of pid %d: %w", c.pid, err)
	}
	ringMem, err := hostmem.MapShared(fds[1], ringBytes(int(answer.depth)), ringPurpose)
	if err != nil {
		bell.hide()
		return nil, fmt.Errorf("shm: completion ring of pid %d: %w", c.pid, err)
	}
	if err := ringMem.Populate(0, len(ringMem.Bytes())); err != nil {
		bell.hide()
		_ = ringMem.Close()
		return nil, fmt.Errorf("shm: completion ring of pid %d: %w", c.pid, err)
	}
	return &peer{name: addr.name, conn: c, bell: bell, out: newOutbox(ringMem, int(answer.depth)), attach: newAttach(c)}, nil
}

// handshakeError: a connection that ends early is one that a busy peer has given up, or the peer is
// dying; the next dial tells.
func handshakeError(c *conn, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: pid %d ended the connection: %w", errRetry, c.pid, err)
	}
	return fmt.Errorf("shm: connect to pid %d: %w", c.pid, err)
}

func refusal(pid int, code uint8) error {
	switch code {
	case codeGone:
		return &PeerError{PID: pid, State: "has closed the endpoint"}
	case codeProof:
		return fmt.Errorf("shm: pid %d refuses the token: %w", pid, rdma.ErrAccess)
	case codeTaken:
		return fmt.Errorf("shm: the endpoint of pid %d is paired with another one", pid)
	case codeResource:
		return fmt.Errorf("%w: pid %d is out of descriptors", errRetry, pid)
	}
	return fmt.Errorf("shm: pid %d refuses the connection with code %d", pid, code)
}

// watch reads the dialed connection until it ends, which is how the loss of the peer is noticed.
func (e *Endpoint) watch(p *peer) {
	for {
		m, fds, err := p.conn.receive(1)
		if err != nil {
			e.endOf(p.conn, err)
			return
		}
		switch m.kind {
		case mapped:
			e.finishMap(p, &m, fds)
		case bye:
			e.lose(farewell(p.conn.pid, m.code))
		default:
			e.lose(&PeerError{PID: p.conn.pid, State: fmt.Sprintf("sent message %d out of turn", m.kind)})
		}
		closeAll(fds)
	}
}

// endOf handles the end of either connection.
func (e *Endpoint) endOf(c *conn, err error) {
	c.close()
	if e.err() != nil {
		return // known already: the end was made here
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		e.lose(lostPeer(c.pid))
		return
	}
	e.lose(&PeerError{PID: c.pid, State: "cannot be understood: " + err.Error()})
}

func farewell(pid int, code uint8) *PeerError {
	if code == codeAccess {
		return &PeerError{PID: pid, State: "broke the connection: a write to here was refused (bad key, range or closed region)"}
	}
	return &PeerError{PID: pid, State: "closed the endpoint"}
}

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// ErrRefused: a rank has left, as its process says, or none of its addresses has a listener any more.
var ErrRefused = meet.ErrRefused

// Port is where a process can be reached for as long as it is in some group: by ranks that talk about a
// failure, by newcomers, and by the members of groups that are formed later and of which it is the root
// ([Config.Port]). Its methods may be called from any goroutine.
type Port struct {
	gate  *meet.Gate
	addrs []string
	dial  func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
	self  wire.Identity
}

// OpenPort binds a socket on any port, or one of cfg.ListenPorts. It listens on loopback only if all ranks
// have to reach the root there and no store is configured, through which others could come.
func OpenPort(ctx context.Context, cfg Config) (*Port, error) {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	listeners, err := listenAny(ctx, &cfg, cfg.loopbackRoot() && !cfg.hasBoard())
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	addrs, err := published(&cfg, listeners, netip.Addr{}, true)
	if err != nil {
		closeAll(listeners)
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return newPort(cfg.Logger, listeners, addrs), nil
}

func newPort(log *zap.Logger, listeners []net.Listener, addrs []string) *Port {
	p := &Port{gate: meet.NewGate(log, listeners), addrs: addrs, self: wire.Identity{PID: uint32(os.Getpid())}}
	p.self.Host, _ = os.Hostname()
	return p
}

// Addrs returns the addresses, "ip:port", at which others reach the port.
func (p *Port) Addrs() []string { return p.addrs }

// Close stops accepting. Contacts stay.
func (p *Port) Close() { p.gate.Close() }

// Purpose is what a contact is for.
type Purpose uint16

// The purposes of contacts.
const (
	ForRecovery = Purpose(wire.Recover)
	ForJoining  = Purpose(wire.Join)
	ForMeeting  = Purpose(wire.Pair) // Pairs' own
	forLooking  = Purpose(wire.Look) // Pairs' own
)

// Circle names a group of ranks that may contact each other, and this one's place in it.
type Circle struct {
	Secret, RunID string // alike on all ranks, and no other circle's
	Rank, Size    int
}

// Entrance is where contacts of a circle arrive.
type Entrance struct{ door *meet.Door }

// Enter lets ranks of a circle, or with ForJoining anybody who knows it, contact this one.
func (p *Port) Enter(c Circle, purpose Purpose) *Entrance {
	return &Entrance{p.gate.Open(meet.NewBadge(c.Secret, c.RunID, 0), wire.Purpose(purpose), uint32(c.Rank))}
}

// Accept waits for a contact, which is the caller's then.
func (e *Entrance) Accept(ctx context.Context) (*Contact, error) {
	select {
	case a := <-e.door.Arrivals:
		return newContact(a.Conn, int(a.Hello.Rank), a.ID), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close lets nobody in any more.
func (e *Entrance) Close() { e.door.Close() }

// Leave closes the entrance, and lets callers know from then on that this rank has left the circle.
func (e *Entrance) Leave() { e.door.Leave() }

// Call contacts rank to of a circle at its addresses. It tries until ctx is done, or that
// rank has left or is gone (ErrRefused).
func (p *Port) Call(ctx context.Context, c Circle, purpose Purpose, to int, addrs []string) (*Contact, error) {
	badge := meet.NewBadge(c.Secret, c.RunID, 0)
	caller := &meet.Caller{
		Badge: badge, What: fmt.Sprintf("rank %d", to), Dial: p.dial, Refusable: true,
		Hello: wire.Hello{
			Purpose: wire.Purpose(purpose), Run: badge.Run,
			Rank: uint32(c.Rank), Size: uint32(c.Size), Target: uint32(to),
		},
	}
	for _, addr := range addrs {
		ap, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, fmt.Errorf("bootstrap: %w: rank %d told the address %q", ErrMismatch, to, addr)
		}
		caller.Targets = append(caller.Targets, meet.Target{Host: ap.Addr().String(), First: int(ap.Port()), Last: int(ap.Port())})
	}
	if len(caller.Targets) == 0 {
		return nil, fmt.Errorf("bootstrap: %w: rank %d told no address", ErrMismatch, to)
	}
	conn, err := caller.Call(ctx)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	contact := newContact(conn, to, wire.Identity{})
	if err := contact.send(wire.Frame{Type: wire.Introduce, Payload: p.self.Append(nil)}, patience); err != nil {
		contact.Close()
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	conn.Net().SetDeadline(time.Time{})
	return contact, nil
}

// Contact is an authenticated connection between two processes. One goroutine at a time may send, and
// one receive.
type Contact struct {
	// Rank is the other's rank in the circle, as it said.
	Rank int
	// PID and Host are the other's process, if it made the contact.
	PID  int
	Host string

	conn    *wire.Conn
	hurried atomic.Bool // by interrupt
}

func newContact(conn *wire.Conn, rank int, id wire.Identity) *Contact {
	return &Contact{Rank: rank, PID: int(id.PID), Host: id.Host, conn: conn}
}

// MaxMessage bounds a message of a contact in bytes.
const MaxMessage = 64 << 10

// Send sends one message, within a time, if that is not 0.
func (c *Contact) Send(message []byte, within time.Duration) error {
	if len(message) > MaxMessage {
		return fmt.Errorf("bootstrap: %w: message of %d bytes", ErrTooLarge, len(message))
	}
	return c.send(wire.Frame{Type: wire.Message, Payload: message}, within)
}

func (c *Contact) send(f wire.Frame, within time.Duration) error {
	if within > 0 {
		c.Hurry(within)
	}
	if c.hurried.Load() {
		c.Hurry(farewell)
	}
	return c.conn.Send(f)
}

// Hurry ends a Send in progress, too, after a time.
func (c *Contact) Hurry(within time.Duration) {
	c.conn.Net().SetWriteDeadline(time.Now().Add(within))
}

// Receive waits for a message. The error is io.EOF, or a reset, if the other has closed its end or died.
func (c *Contact) Receive() ([]byte, error) {
	f, err := c.conn.Receive()
	if err != nil {
		return nil, err
	}
	if f.Type != wire.Message {
		return nil, errors.New("bootstrap: a contact carries messages only")
	}
	return f.Payload, nil
}

// interrupt ends a Receive in progress at once, and each Send soon; nothing more is received.
func (c *Contact) interrupt() {
	c.hurried.Store(true)
	c.conn.Net().SetReadDeadline(time.Unix(1, 0))
	c.Hurry(farewell)
}

// part sends a last message and closes the contact. It takes what the other still sends, so that neither
// waits for the other to read, nor a reset overtakes the message; both for no longer than farewell.
func (c *Contact) part(word []byte) {
	defer c.Close()
	nc := c.conn.Net()
	nc.SetReadDeadline(time.Now().Add(farewell))
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, nc)
	}()
	if half, ok := nc.(interface{ CloseWrite() error }); c.Send(word, farewell) != nil || !ok || half.CloseWrite() != nil {
		c.Close()
	}
	<-read
}

// Close closes the contact; it may be called more than once and ends Send and Receive.
func (c *Contact) Close() { c.conn.Net().Close() }

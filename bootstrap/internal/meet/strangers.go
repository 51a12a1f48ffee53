package meet

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// Stranger is a process that spoke the protocol and was not let in.
type Stranger struct {
	Hello wire.Hello
	From  string // its address
	Why   error
	Times int
}

// maxKnown bounds the strangers that a gate remembers, the oldest ones, as what comes later may be noise.
const maxKnown = 32

// errSecret is what a gate sees of a caller that the gate's proof did not convince.
var errSecret = errors.New("it hung up when it was challenged (does it know the same GCCL_SECRET?)")

// remember notes a stranger.
func (g *Gate) remember(nc net.Conn, h wire.Hello, why error) {
	from := nc.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	h.Nonce = [len(h.Nonce)]byte{}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.known, func(s Stranger) bool {
		return s.Hello == h && s.From == from && s.Why.Error() == why.Error()
	})
	switch {
	case i >= 0:
		g.known[i].Times++
	case len(g.known) < maxKnown:
		g.known = append(g.known, Stranger{h, from, why, 1})
	}
}

// Strangers returns who has spoken the protocol at the door's gate and was not let in.
func (d *Door) Strangers() []Stranger {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	return slices.Clone(d.gate.known)
}

// suspect tells from the end of a handshake whether the caller had another secret.
func suspect(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, wire.ErrSecret) {
		return errSecret
	}
	return err
}

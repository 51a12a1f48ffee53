package tcp

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Defaults and limits of Options.
const (
	defaultDeadAfter = 3 * time.Second
	minDeadAfter     = 2 * time.Second // keep-alive counts in whole seconds
	defaultMaxPosted = 256
	maxMaxPosted     = 1 << 16
	maxSockets       = 16
)

// Options has a usable zero value: all interfaces, any port, one socket per endpoint, no
// encryption.
type Options struct {
	// Interfaces chooses the interfaces whose addresses are listened on and advertised. An entry is
	// a name or a pattern as in path.Match ("eth*"), and an entry that begins with ^ excludes
	// ("^docker*"). With exclusions only, all others are chosen. A name without a pattern must
	// exist. Loopback needs no entry: its addresses are dialled by processes of the same host only.
	Interfaces []string
	// PortMin and PortMax bound the ports to listen on, inclusively. Both 0: any free port. A
	// device needs one port.
	PortMin, PortMax int
	// Secret, if not empty, must be the same at both ends: nobody connects without it.
	Secret []byte
	// Encrypt runs TLS 1.3 on every connection. It must be the same at both ends. It costs two
	// goroutines a socket and several copies.
	Encrypt bool
	// TLS, if not nil, is used with Encrypt: certificates and how to verify the peer's. Both ends
	// dial and listen, so it serves both purposes; an empty ServerName means the dialled address.
	// If nil, both ends make a certificate for this device alone, and the connection is
	// authenticated by the tokens and by Secret, which are bound to it (RFC 9266).
	TLS *tls.Config
	// Checksum protects the payload of every frame that this device sends with a CRC-32C of its own.
	// Headers are always protected.
	Checksum bool
	// Sockets is how many sockets an endpoint uses for long writes, at most 16. The smaller number
	// of both ends counts. With 2 or more a socket that fails is made up for by the others. 0 means 1.
	Sockets int
	// DeadAfter is after how much silence a host that should answer is taken for dead. A
	// process that is alive and does nothing is not silent: its kernel answers. 0 means 3 s, the
	// least is 2 s.
	DeadAfter time.Duration
	// MaxPosted is how many writes an endpoint holds, a power of two. 0 means 256.
	MaxPosted int
	// Log receives what no caller could be told: strangers on the listening port, sockets that were lost
	// while others went on. nil: nowhere.
	Log *zap.Logger
}

// withDefaults returns o with defaults filled in, or what is wrong with it.
func (o Options) withDefaults() (Options, error) {
	o.Sockets = cmp.Or(o.Sockets, 1)
	o.DeadAfter = cmp.Or(o.DeadAfter, defaultDeadAfter)
	o.MaxPosted = cmp.Or(o.MaxPosted, defaultMaxPosted)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	switch {
	case o.Sockets < 1 || o.Sockets > maxSockets:
		return o, fmt.Errorf("tcp: Sockets is %d, must be 1 to %d", o.Sockets, maxSockets)
	case o.DeadAfter < minDeadAfter:
		return o, fmt.Errorf("tcp: DeadAfter is %v, must be at least %v", o.DeadAfter, minDeadAfter)
	case o.MaxPosted < 2 || o.MaxPosted > maxMaxPosted || o.MaxPosted&(o.MaxPosted-1) != 0:
		return o, fmt.Errorf("tcp: MaxPosted is %d, must be a power of two, 2 to %d", o.MaxPosted, maxMaxPosted)
	case o.PortMin < 0 || o.PortMax > 65535 || o.PortMin > o.PortMax || (o.PortMin == 0) != (o.PortMax == 0):
		return o, fmt.Errorf("tcp: port range %d-%d", o.PortMin, o.PortMax)
	case o.TLS != nil && !o.Encrypt:
		return o, errors.New("tcp: TLS is given but Encrypt is not set")
	}
	return o, nil
}

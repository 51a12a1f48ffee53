//go:build linux

package tcp

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

func (d *device) keys() keys { return keys{d.opts.Secret} }

// exporterLabel is the label of RFC 9266 (tls-exporter channel binding).
const exporterLabel = "EXPORTER-Channel-Binding"

// tlsConfig prepares the user's configuration, or makes one with a certificate for this device alone.
// In the second case nobody's certificate is verified: the handshake's proofs cover the session's
// exporter, so a man in the middle, whose two sessions have two exporters, cannot relay them.
func tlsConfig(users *tls.Config) (*tls.Config, error) {
	if users != nil {
		c := users.Clone()
		c.MinVersion = tls.VersionTLS13
		return c, nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		InsecureSkipVerify:     true, // see above
		SessionTicketsDisabled: true,
	}, nil
}

// secure runs TLS on a fresh connection if the device encrypts; server is "" for an accepted one. It
// returns the connection to go on with and what identifies its session.
func (d *device) secure(c *net.TCPConn, server string) (net.Conn, []byte, error) {
	if d.tls == nil {
		return c, nil, nil
	}
	var t *tls.Conn
	if server == "" {
		t = tls.Server(c, d.tls)
	} else {
		config := d.tls
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName = server
		}
		t = tls.Client(c, config)
	}
	// The connection's deadline bounds the handshake.
	if err := t.HandshakeContext(context.Background()); err != nil {
		return nil, nil, fmt.Errorf("tls: %w", err)
	}
	state := t.ConnectionState()
	exporter, err := state.ExportKeyingMaterial(exporterLabel, nil, 32)
	if err != nil {
		return nil, nil, fmt.Errorf("tls: %w", err)
	}
	return t, exporter, nil
}

// relay joins a TLS connection with a local socket whose other end it returns: the data path is the
// same for both kinds of connection, which costs two more copies where encryption costs more anyway.
type relay struct {
	secure *tls.Conn
	tcp    *net.TCPConn
	local  net.Conn
	ended  atomic.Bool // local has everything that came

	mu  sync.Mutex
	err error // why it ended; nil: at the end of the stream
}

// startRelay returns the descriptor that stands for the connection.
func startRelay(secure *tls.Conn, tcp *net.TCPConn) (*relay, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("socketpair: %w", err)
	}
	file := os.NewFile(uintptr(fds[0]), "tls relay")
	local, err := net.FileConn(file) // has its own descriptor
	_ = file.Close()
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	r := &relay{secure: secure, tcp: tcp, local: local}
	go r.inward()
	go r.outward()
	return r, fds[1], nil
}

// inward carries what the peer sends, and drops it once the endpoint is closed. At the end, the local
// socket reads as the connection did.
func (r *relay) inward() {
	b := make([]byte, 64<<10)
	var err error
	for local := true; err == nil; {
		var n int
		n, err = r.secure.Read(b)
		if n > 0 && local {
			_, lost := r.local.Write(b[:n])
			local = lost == nil
		}
	}
	r.end(err)
	_ = r.local.Close()
	r.ended.Store(true)
}

// outward carries what this end sends, until the endpoint is closed.
func (r *relay) outward() {
	b := make([]byte, 64<<10)
	for {
		n, err := r.local.Read(b)
		if n > 0 {
			if _, err := r.secure.Write(b[:n]); err != nil {
				r.end(err)
				return
			}
		}
		if err != nil {
			_ = r.secure.CloseWrite()
			return
		}
	}
}

// finish has the relay end by itself soon, whatever the peer does.
func (r *relay) finish() { _ = r.tcp.SetDeadline(time.Now().Add(time.Second)) }

// end notes what ended one direction, and ends the connection.
func (r *relay) end(err error) {
	r.mu.Lock()
	if r.err == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		r.err = err
	}
	r.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = r.tcp.SetLinger(0) // the peer does not read: it hears of the end by a reset
	}
	_ = r.tcp.Close()
}

// cause is why the relay ended; nil: the stream ended.
func (r *relay) cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

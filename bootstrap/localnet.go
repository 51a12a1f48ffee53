package bootstrap

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"go.uber.org/zap"
)

// LocalNet lets ranks that are goroutines of one process reach each other as processes do over TCP: its
// ports have addresses, contacts go through the same handshake, but no socket is opened.
type LocalNet struct {
	mu    sync.Mutex
	ports map[string]*localListener
	last  int
	parts map[string]*localHub // groups that not all their ranks have joined
	ended []string             // those of them that all who had joined have left, the latest endedMost
}

// endedMost is how many groups that will not come about are remembered, for ranks that are late to join.
const endedMost = 16

// NewLocalNet returns a network without ports.
func NewLocalNet() *LocalNet {
	return &LocalNet{ports: map[string]*localListener{}, parts: map[string]*localHub{}}
}

// OpenPort opens a port on the network.
func (n *LocalNet) OpenPort() *Port {
	n.mu.Lock()
	n.last++
	// Like TCP's, but of the network's own: the low bits of the address carry what a port has no room for.
	ip := netip.AddrFrom4([4]byte{127, 0, byte(n.last >> 24), byte(n.last >> 16)})
	l := &localListener{net: n, addr: netip.AddrPortFrom(ip, uint16(n.last)).String(), conns: make(chan net.Conn), done: make(chan struct{})}
	n.ports[l.addr] = l
	n.mu.Unlock()
	p := newPort(zap.NewNop(), []net.Listener{l}, []string{l.addr})
	p.dial = n.dial
	return p
}

func (n *LocalNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.ports[addr]
	n.mu.Unlock()
	if l != nil {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.done:
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "local", Err: syscall.ECONNREFUSED}
}

// Join returns this rank's end of the group of that name, which as many ranks join as its size says. A rank that
// joins after others have left finds the group broken, unless that was long ago, by the number of such groups.
func (n *LocalNet) Join(name string, rank, size int) Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.parts[name]
	if h == nil {
		h = newLocalHub(size)
		h.left = func() { n.retire(name, h) }
		n.parts[name] = h
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.joined++; h.joined == size {
		delete(n.parts, name)
	}
	return h.group(rank)
}

// retire takes note that a group is one that all have left and not all have joined, if it is, and forgets the oldest.
func (n *LocalNet) retire(name string, h *localHub) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.parts[name] != h || !h.abandoned() || slices.Contains(n.ended, name) {
		return
	}
	if n.ended = append(n.ended, name); len(n.ended) > endedMost {
		delete(n.parts, n.ended[0])
		n.ended = slices.Delete(n.ended, 0, 1)
	}
}

// localListener is a port's end of a LocalNet.
type localListener struct {
	net   *LocalNet
	addr  string
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *localListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *localListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		delete(l.net.ports, l.addr)
		l.net.mu.Unlock()
	})
	return nil
}

func (l *localListener) Addr() net.Addr { return &net.UnixAddr{Name: l.addr, Net: "local"} }

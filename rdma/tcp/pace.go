//go:build linux

package tcp

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpaced takes a socket for connections within a host out of congestion control that paces: there is no network to
// spare, and where the system's default is BBR its timers and its probing cost up to half of the rate
// (measured with messages of some MiB). Reno is in every kernel and free to use (tcp(7)); where it is not,
// the default stays.
//
// It is for a socket that is not connected yet, or that listens, whose connections inherit it: BBR switches
// pacing on when a connection is established, and Linux never switches it off again, whatever the
// connection is given later.
func unpaced(c syscall.RawConn) {
	_ = c.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
}

// newDialer returns what dials a peer, which is near if it is on this host.
func newDialer(near bool) net.Dialer {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}}
	if near {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			unpaced(c)
			return nil
		}
	}
	return d
}

// listenTCP listens on a loopback address for what comes from this host, and on another for anybody.
func listenTCP(at netip.AddrPort) (net.Listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	if at.Addr().IsLoopback() {
		if raw, err := l.SyscallConn(); err == nil {
			unpaced(raw)
		}
	}
	return l, nil
}

//go:build linux

package tcp

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Connections within a host have never had congestion control that paces. Where the system's default is Reno itself,
// this cannot fail.
func TestWithinAHostNothingIsPaced(t *testing.T) {
	d, err := open(Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	looked := 0
	for _, l := range d.listeners {
		if netip.MustParseAddrPort(l.Addr().String()).Addr().IsLoopback() {
			assert.Equal(t, "reno", congestion(t, l.(*net.TCPListener)), "%v", l.Addr())
			looked++
		}
	}
	require.Positive(t, looked)
	l, err := listenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	dialer := newDialer(true)
	c, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	accepted, err := l.Accept()
	require.NoError(t, err)
	defer func() { require.NoError(t, accepted.Close()) }()
	assert.Equal(t, "reno", congestion(t, c.(*net.TCPConn)), "dialled")
	assert.Equal(t, "reno", congestion(t, accepted.(*net.TCPConn)), "accepted")
}

func congestion(t *testing.T, c syscall.Conn) (name string) {
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}))
	require.NoError(t, err)
	return name
}

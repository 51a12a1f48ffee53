package meet

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// stuckTimeout is how long sent data may stay unacknowledged before a connection counts as broken.
const stuckTimeout = 30 * time.Second

// tune makes a broken network show: see keepAlive, and for data under way stuckTimeout. Best effort.
func tune(nc net.Conn) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	tc.SetKeepAliveConfig(keepAlive)
	if raw, err := tc.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(stuckTimeout.Milliseconds()))
		})
	}
}

//go:build !linux

package meet

import "net"

// tune makes a broken network show: see keepAlive. Best effort.
func tune(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		tc.SetKeepAliveConfig(keepAlive)
	}
}

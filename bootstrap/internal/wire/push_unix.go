//go:build unix

package wire

import (
	"net"
	"syscall"
)

// push writes what the kernel takes at once, whether or not a deadline has passed, and returns how much that is. Why it is not all, a
// Write of the rest tells.
func push(nc net.Conn, b []byte) (n int) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) { // Write would look at the deadline
		for n < len(b) {
			k, err := syscall.Write(int(fd), b[n:])
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return
			}
			n += k
		}
	})
	return n
}

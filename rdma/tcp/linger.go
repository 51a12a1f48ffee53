//go:build linux

package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainLimit bounds how much unread input a closing lane drops at a time.
	drainLimit = 1 << 20
	// lingerTick is how often a closed lane looks whether the peer's kernel has taken everything.
	lingerTick = 20 * time.Millisecond
	// lingerIdle is how long it may take none of it. Then the connection is reset, so that a peer that
	// does not poll hears of the end.
	lingerIdle = 200 * time.Millisecond
	// lingerMax bounds the whole.
	lingerMax = 10 * time.Second
)

// close ends the connection: at once if the peer's kernel has everything, otherwise soon and in the
// background. Nobody uses the lane any more.
func (l *lane) close() {
	if l.fd < 0 {
		return
	}
	fd := l.fd
	l.fd = -1
	unsent, _ := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	drain(fd)
	if l.relay != nil {
		l.relay.finish()
	}
	if unsent == 0 || l.relay != nil {
		_ = unix.Close(fd)
		return
	}
	now := time.Now()
	lingering{fd: fd, unsent: unsent, progress: now, end: now.Add(lingerMax)}.later()
}

// drain drops unread input: a socket that is closed with unread input sends a reset, which can
// overtake the last writes.
func drain(fd int) {
	var v vectors
	b := make([]byte, 64<<10)
	for n := 0; n < drainLimit; {
		k, errno := v.recv(fd, b, nil)
		if errno != 0 || k == 0 {
			return
		}
		n += k
	}
}

// lingering is a connection that was closed while the peer's kernel had not taken everything.
type lingering struct {
	fd       int
	unsent   int
	progress time.Time // when unsent last fell
	end      time.Time
}

func (g lingering) later() { time.AfterFunc(lingerTick, g.look) }

func (g lingering) look() {
	now := time.Now()
	drain(g.fd)
	unsent, err := unix.IoctlGetInt(g.fd, unix.TIOCOUTQ)
	switch {
	case err != nil || unsent == 0:
	case unsent != g.unsent && now.Before(g.end):
		g.unsent, g.progress = unsent, now
		g.later()
		return
	case now.Sub(g.progress) < lingerIdle && now.Before(g.end):
		g.later()
		return
	default:
		resetOnClose(g.fd)
	}
	_ = unix.Close(g.fd)
}

// resetOnClose has the kernel drop what is unsent and reset the connection when its socket is closed.
func resetOnClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 0})
}

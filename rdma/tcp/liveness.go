//go:build linux

package tcp

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's keep-alive finds a silent host while nothing is under way: probes begin after a third
// of DeadAfter and end it after two thirds more, in whole seconds. While something is under way the
// kernel would try again for many minutes, so watchSilence looks at its counters.

// keepAlive has the kernel probe an idle connection.
func keepAlive(c *net.TCPConn, deadAfter time.Duration) error {
	third := max(time.Second, (deadAfter / 3).Truncate(time.Second))
	count := max(1, int((deadAfter-third)/third))
	return c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: third, Interval: third, Count: count})
}

// quiet is what watchSilence knows about a lane, guarded by the transmitter's mu.
type quiet struct {
	since time.Time // first seen unanswered; zero: it answers
}

// livenessPeriod is how often the counters are looked at.
func (d *device) livenessPeriod() time.Duration { return d.opts.DeadAfter / 12 }

// watchSilence gives up the connections whose peers' kernels have not answered for half of DeadAfter. It
// runs every livenessPeriod.
func (d *device) watchSilence() {
	if d.ctx.Err() != nil {
		return
	}
	for _, e := range d.snapshot() {
		for l, what := e.silence(time.Now()); l != nil; l, what = e.silence(time.Now()) {
			e.loseLane(l, what)
		}
	}
	time.AfterFunc(d.livenessPeriod(), d.watchSilence)
}

// silence returns a lane over which the peer's host is taken for dead, and why, or nil.
func (e *endpoint) silence(now time.Time) (*lane, error) {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.tx.closed || e.tx.err != nil {
		return nil, nil
	}
	for _, l := range e.lanes {
		// Retransmits counts timeouts since the last acknowledgement, Probes the unanswered probes of
		// a closed window or of keep-alive: a kernel that lives answers them, however long its
		// process does not read. It leaves out one that comes within 500 ms of another
		// (net.ipv4.tcp_invalid_ratelimit), hence the 2.
		var retransmits, probes int
		l.withTCP(func(fd int) {
			if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				retransmits, probes = int(info.Retransmits), int(info.Probes)
			}
		})
		switch {
		case retransmits == 0 && probes < 2:
			l.quiet.since = time.Time{}
		case l.quiet.since.IsZero():
			l.quiet.since = now
		case now.Sub(l.quiet.since) >= e.dev.opts.DeadAfter/2:
			return l, fmt.Errorf("the host has not answered for about %v (%d retransmissions, %d probes): %w",
				now.Sub(l.quiet.since).Round(100*time.Millisecond), retransmits, probes, unix.ETIMEDOUT)
		}
	}
	return nil, nil
}

// withTCP calls f with the TCP socket, which under TLS is not the lane's.
func (l *lane) withTCP(f func(fd int)) {
	if l.relay == nil {
		f(l.fd)
		return
	}
	if raw, err := l.relay.tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

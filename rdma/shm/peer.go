//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/gccl/gccl/rdma"
)

// PeerError says what became of a peer's process. It wraps rdma.ErrPeerLost.
type PeerError struct {
	PID   int    // as seen from this process; 0 if its pid namespace is not visible here
	State string // "was killed by signal 9 (killed)", "is gone", "closed the endpoint", …
}

// Error implements error.
func (e *PeerError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("shm: peer lost: a process of another pid namespace %s", e.State)
	}
	return fmt.Sprintf("shm: peer lost: pid %d %s", e.PID, e.State)
}

// Unwrap returns rdma.ErrPeerLost.
func (e *PeerError) Unwrap() error { return rdma.ErrPeerLost }

// lostPeer explains the end of a connection to pid that came without a word. A process closes its
// connections shortly before it shows as dead, so it is given a few milliseconds to do so.
func lostPeer(pid int) *PeerError {
	const tries, pause = 10, 500 * time.Microsecond
	for i := 0; ; i++ {
		state, dead := processState(pid)
		if dead || i == tries {
			return &PeerError{PID: pid, State: state}
		}
		time.Sleep(pause) // bounded by tries: /proc has no event to wait for
	}
}

// processState tells from /proc whether pid is dead, and how it died if the kernel says so
// (proc(5): the state is field 3, the wait status of a zombie field 52).
func processState(pid int) (text string, dead bool) {
	if pid <= 0 {
		return "closed the connection", true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "is gone", true
	}
	_, rest, found := bytes.Cut(stat, []byte(") "))
	for i := bytes.Index(rest, []byte(") ")); i >= 0; i = bytes.Index(rest, []byte(") ")) {
		rest = rest[i+2:] // the name in field 2 may hold parentheses
	}
	fields := bytes.Fields(rest)
	if err != nil || !found || len(fields) == 0 {
		return "closed the connection", false
	}
	if state := fields[0][0]; state != 'Z' && state != 'X' {
		return "runs, but closed the connection", false
	}
	if len(fields) >= 50 {
		if status, err := strconv.Atoi(string(fields[49])); err == nil {
			switch ws := syscall.WaitStatus(status); {
			case ws.Signaled():
				return fmt.Sprintf("was killed by signal %d (%s)", int(ws.Signal()), ws.Signal()), true
			case ws.Exited():
				return fmt.Sprintf("exited with status %d", ws.ExitStatus()), true
			}
		}
	}
	return "is dead", true
}

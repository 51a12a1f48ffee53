//go:build !linux

package verbs

import (
	"time"

	"golang.org/x/sys/unix"
)

// ppoll waits for about d until a descriptor is ready, and returns how many are.
func ppoll(fds []unix.PollFd, d time.Duration) (int, error) {
	return unix.Poll(fds, int(max(0, d.Milliseconds())))
}

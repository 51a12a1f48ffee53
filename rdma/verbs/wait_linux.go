package verbs

import (
	"time"

	"golang.org/x/sys/unix"
)

// ppoll waits for about d until a descriptor is ready, and returns how many are.
func ppoll(fds []unix.PollFd, d time.Duration) (int, error) {
	limit := unix.NsecToTimespec(max(0, d.Nanoseconds()))
	return unix.Ppoll(fds, &limit, nil)
}

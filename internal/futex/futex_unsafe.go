//go:build linux

package futex

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// futex(2) operations, from linux/futex.h. Without FUTEX_PRIVATE_FLAG the kernel names the word by
// its page, so processes that map the page at different addresses meet.
const (
	opWake       = 1
	opWaitBitset = 9 // its timeout is absolute, so that a wait cut short by a signal resumes right
	matchAny     = math.MaxUint32
)

// Wait sleeps while *word is still, up to d, and reports whether it may have been woken: false
// means that the time is over. It returns at once if *word is not still. Like every futex wait it
// may return true for no reason, so the caller looks again at what it waits for. Signals do not
// end it.
func Wait(word *atomic.Uint32, still uint32, d time.Duration) bool {
	if d <= 0 {
		return false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return true // cannot happen; the caller's loop then polls
	}
	until := unix.NsecToTimespec(addSaturated(now.Nano(), int64(d)))
	for {
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWaitBitset,
			uintptr(still), uintptr(unsafe.Pointer(&until)), 0, matchAny)
		switch errno {
		case unix.EINTR: // the Go runtime sends SIGURG all the time
		case unix.ETIMEDOUT:
			return false
		default: // woken, or EAGAIN: the word had changed
			return true
		}
	}
}

// Wake wakes up to n waiters of word, in any process, and returns how many there were.
func Wake(word *atomic.Uint32, n int) int {
	woken, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(woken)
}

func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

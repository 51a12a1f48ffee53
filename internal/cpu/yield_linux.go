package cpu

import "golang.org/x/sys/unix"

// Yield gives the core to another thread that can run, if there is one (sched_yield). It does not
// tell the Go scheduler: a loop around it should call runtime.Gosched now and then.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

package cpu

import "golang.org/x/sys/unix"

// Commands of membarrier(2).
const (
	globalExpedited         = 1 << 1
	registerGlobalExpedited = 1 << 2
)

// ReceiveFences has the kernel include this process in the fences of others, for good. It reports
// whether it does; some sandboxes forbid it.
func ReceiveFences() bool {
	_, _, e := unix.Syscall(unix.SYS_MEMBARRIER, registerGlobalExpedited, 0, 0)
	return e == 0
}

// FenceOthers puts a full memory barrier into every running thread of every process that has called
// [ReceiveFences]: stores that those threads had begun are visible when it returns, and loads that
// they begin later see what the caller stored before. It is the dear half of a pair whose cheap half
// is [StoreRelease]: a microsecond or more.
func FenceOthers() { _, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, globalExpedited, 0, 0) }

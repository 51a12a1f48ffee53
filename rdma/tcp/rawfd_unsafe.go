//go:build linux

package tcp

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call makes a system call on a non-blocking socket and retries it after a signal. a may be a
// pointer, which the directive keeps alive and in its place.
//
// The scheduler is not told of it. A call moves pieceMax and a buffer at most, for about 0.1 ms, which the
// garbage collector then waits. Told, the scheduler takes the processor away after 20 µs and has it
// spin in another thread, on the core of this one if the process is bound to it: 1 MiB over loopback took
// a third longer.
//
//go:uintptrescapes
func call(trap, fd, a, b, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, a, b, flags, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// vectors is the argument of a call with several buffers. It lives as long as its lane and is used by
// one call at a time.
type vectors struct {
	msg unix.Msghdr
	iov [3]unix.Iovec
}

func (v *vectors) set(bs ...[]byte) {
	for i, b := range bs {
		v.iov[i].Base = unsafe.SliceData(b)
		v.iov[i].SetLen(len(b))
	}
	v.msg.Iov = &v.iov[0]
	v.msg.SetIovlen(len(bs))
}

// clear drops the references to the buffers.
func (v *vectors) clear() { v.iov = [3]unix.Iovec{} }

// recv reads into a and then into b, either of which may be empty but not both. It returns 0 bytes
// and no error at the end of the stream.
func (v *vectors) recv(fd int, a, b []byte) (int, syscall.Errno) {
	const flags = unix.MSG_DONTWAIT
	if len(a) == 0 {
		a, b = b, nil
	}
	if len(b) == 0 {
		return call(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)), flags)
	}
	v.set(a, b)
	n, errno := call(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), flags, 0)
	v.clear()
	return n, errno
}

// send writes a, b and then c, of which some may be empty but not all.
func (v *vectors) send(fd int, a, b, c []byte) (int, syscall.Errno) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if len(a) == 0 {
		a, b, c = b, c, nil
	}
	if len(a) == 0 {
		a, b = b, nil
	}
	if len(b) == 0 && len(c) == 0 {
		return call(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)), flags)
	}
	v.set(a, b, c)
	n, errno := call(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), flags, 0)
	v.clear()
	return n, errno
}

// epollReady moves what is ready into events without waiting.
func epollReady(epfd int, events []unix.EpollEvent) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// epollWait is epollReady that waits for up to about d. It tells the scheduler that it may take long, and
// returns EINTR after a signal.
func epollWait(epfd int, events []unix.EpollEvent, d time.Duration) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(max(1, d.Milliseconds())), 0, 0)
	return int(n), errno
}

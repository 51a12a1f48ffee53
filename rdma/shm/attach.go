//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"golang.org/x/sys/unix"
)

var _ rdma.Attacher = (*Endpoint)(nil)

// attach is what an endpoint reads the memory of its peer's process with (process_vm_readv(2)).
type attach struct {
	pid    int
	raw    syscall.RawConn // the connection: it ends before a process's number can be another's
	local  unix.Iovec
	remote unix.RemoteIovec
	polled [1]unix.PollFd
	look   func(fd uintptr) // polls; kept, so that no call allocates
	err    error            // of look
}

func newAttach(c *conn) *attach {
	raw, err := c.unix.SyscallConn()
	if err != nil || c.pid == 0 {
		return nil
	}
	a := &attach{pid: c.pid, raw: raw}
	a.look = func(fd uintptr) {
		a.polled[0] = unix.PollFd{Fd: int32(fd)}
		for {
			if _, a.err = unix.Poll(a.polled[:], 0); a.err != unix.EINTR { // tells of a hang-up unasked
				return
			}
		}
	}
	return a
}

// Attach implements rdma.Attacher.
func (e *Endpoint) Attach(dst []byte, addr uint64) error {
	if len(dst) == 0 {
		return nil
	}
	if !e.use.acquire() {
		return errEndpointClosed
	}
	defer e.use.release()
	p := e.peer.Load()
	switch {
	case p == nil:
		return errNotConnected
	case p.attach == nil:
		return fmt.Errorf("shm: the peer's process has no number in this pid namespace: %w", rdma.ErrAccess)
	}
	a := p.attach
	err := readProcess(a.pid, dst, addr, &a.local, &a.remote)
	ended, looked := a.ended()
	switch {
	case ended && e.err() != nil:
		return e.err()
	case ended:
		return &PeerError{PID: a.pid, State: "closed the connection"}
	case errors.Is(err, unix.ESRCH): // it ends at any moment
		return &PeerError{PID: a.pid, State: "is gone"}
	case err != nil:
		return fmt.Errorf("shm: read %d bytes at %#x of pid %d: %w: %w", len(dst), addr, a.pid, rdma.ErrAccess, err)
	case looked != nil:
		return fmt.Errorf("shm: poll the connection to pid %d: %w", a.pid, looked)
	}
	return nil
}

// ended reports whether the connection has, at one of its ends.
func (a *attach) ended() (bool, error) {
	if err := a.raw.Control(a.look); err != nil {
		return true, nil
	}
	return a.polled[0].Revents&unix.POLLHUP != 0, a.err
}

// readMost bounds a call of the kernel, which Go's scheduler is not told of.
const readMost = 512 << 10

// readProcess copies memory of a process, which may take several calls.
func readProcess(pid int, dst []byte, addr uint64, local *unix.Iovec, remote *unix.RemoteIovec) error {
	defer func() { local.Base = nil }() // keeps dst no longer
	for len(dst) > 0 {
		local.Base = &dst[0]
		local.SetLen(min(len(dst), readMost))
		*remote = unix.RemoteIovec{Base: uintptr(addr), Len: min(len(dst), readMost)}
		n, err := readv(pid, local, remote)
		if err == nil && n == 0 {
			err = unix.EFAULT
		}
		if err != nil {
			return err
		}
		dst, addr = dst[n:], addr+uint64(n)
	}
	return nil
}

// A page costs the kernel some time of its own, beside copying it: 0.1 to 0.2 µs on one machine, as fast as that is just then, and 0.5
// on another, whose hypervisor shadows page tables. The way through a slot costs a second copy, from cache to cache: 0.3 to 0.5
// µs a page. The least of many tries counts, so that all ranks come to the same result.
const (
	pageMost    = 300 * time.Nanosecond
	attachTrial = 64 << 10
	attachTries = 24
)

// AttachPays returns nil if reading another process's memory takes less time here than the way through shared memory, or
// else why not. It is measured once, on this process's own memory, in some 0.2 ms.
func AttachPays() error { return attachPays() }

var attachPays = sync.OnceValue(func() error {
	mem, err := hostmem.Alloc(2*attachTrial, "shm trial")
	if err != nil {
		return err
	}
	defer func() { _ = mem.Close() }()
	src, dst := mem.Bytes()[:attachTrial], mem.Bytes()[attachTrial:]
	var local unix.Iovec
	var remote unix.RemoteIovec
	pid := unix.Getpid()
	addr := uint64(hostmem.Addr(src))
	kernel, plain := time.Hour, time.Hour
	for range attachTries {
		begin := time.Now()
		if err := readProcess(pid, dst, addr, &local, &remote); err != nil {
			return fmt.Errorf("process_vm_readv: %w", err)
		}
		between := time.Now()
		copy(dst, src)
		kernel, plain = min(kernel, between.Sub(begin)), min(plain, time.Since(between))
	}
	if page := (kernel - plain) / (attachTrial / 4096); page > pageMost {
		return fmt.Errorf("process_vm_readv takes %v a page beside copying, more than %v", page, pageMost)
	}
	return nil
})

// AllowAttach lets processes of the same user read this one's memory where a security module (Yama) asks for its leave: it
// may be traced by any of them from then on.
func AllowAttach() error {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil || string(bytes.TrimSpace(scope)) != "1" { // 0: they may; 2, 3: nothing is to be had here
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0); err != nil {
		return fmt.Errorf("shm: prctl(PR_SET_PTRACER): %w", err)
	}
	return nil
}

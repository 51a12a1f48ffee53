package hostmem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// hugePage is the size from which a block asks for huge pages: a PMD page of x86-64, and of arm64
// with 4 KiB pages.
const hugePage = 2 << 20

// seals forbid resizing for ever, so that no holder of the descriptor can take pages from under a
// mapping (memfd_create(2), "File sealing").
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func reserveAnonymous(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, noMemory("mmap", err)
	}
	return b, nil
}

func mapAnonymous(n int) ([]byte, error) {
	b, err := reserveAnonymous(n)
	if err != nil {
		return nil, err
	}
	err = prepare(b)
	if errors.Is(err, unix.EINVAL) {
		touch(b)
	} else if err != nil {
		_ = unix.Munmap(b)
		return nil, err
	}
	return b, nil
}

// touch makes the kernel give every page of fresh private memory.
func touch(b []byte) {
	for off := 0; off < len(b); off += PageSize {
		b[off] = 0
	}
}

// visit goes over every page of a populated block, whose bytes other processes may be changing. The
// kernel's populating is not all: under a hypervisor that shadows page tables the first visit to each
// page costs another fault, which the guest does not see (8 µs a page was measured, populated or not).
func visit(b []byte) {
	for off := 0; off+4 <= len(b); off += PageSize {
		Word32(b, off).Add(0)
	}
}

func newShared(n int) ([]byte, int, error) { return makeShared(n, fillShared) }

func reserveShared(n int) ([]byte, int, error) { return reserveSharedOn(os.DirFS("/"), n) }

// reserveSharedOn is reserveShared on a machine whose files are given. With vm.overcommit_memory 2 the kernel
// counts each page of a memory file when it is first touched, and beyond its limit raises SIGBUS instead, which
// ends the process. All pages come at once there, whose lack is an error.
func reserveSharedOn(root fs.FS, n int) ([]byte, int, error) {
	if mode, ok := numberIn(root, "proc/sys/vm/overcommit_memory"); ok && mode == 2 {
		return newShared(n)
	}
	return makeShared(n, sizeShared)
}

// makeShared makes a memory file, of which size maps n bytes.
func makeShared(n int, size func(fd, n int) ([]byte, error)) ([]byte, int, error) {
	fd, err := retry(func() (int, error) {
		return unix.MemfdCreate("gccl", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	})
	if err != nil {
		return nil, -1, fmt.Errorf("memfd_create: %w", err)
	}
	b, err := size(fd, n)
	if err != nil {
		_ = closeFile(fd)
		return nil, -1, err
	}
	return b, fd, nil
}

// sizeShared gives a memory file its size for ever.
func sizeShared(fd, n int) ([]byte, error) {
	if _, err := retry(func() (int, error) { return 0, unix.Ftruncate(fd, int64(n)) }); err != nil {
		return nil, noMemory("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, noMemory("mmap", err)
	}
	return b, nil
}

func fillShared(fd, n int) ([]byte, error) {
	b, err := sizeShared(fd, n)
	if err != nil {
		return nil, err
	}
	err = prepare(b)
	if errors.Is(err, unix.EINVAL) {
		err = allocateFile(fd, n)
	}
	if err != nil {
		_ = unix.Munmap(b)
		return nil, err
	}
	return b, nil
}

// checkShared tells whether fd is a memory file of n bytes that no one can resize.
func checkShared(fd, n int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || have&seals != seals {
		return fmt.Errorf("%w: seals %#x (%v)", ErrBadFile, have, err)
	}
	if st.Size != int64(n) {
		return fmt.Errorf("%w: %d bytes, want %d", ErrBadFile, st.Size, n)
	}
	return nil
}

func mapShared(fd, n int) ([]byte, error) {
	if err := checkShared(fd, n); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, noMemory("mmap", err)
	}
	return b, nil
}

func populate(b []byte) error {
	if err := prepare(b); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil // the first use of each page does it
}

// visitMost is the longest block whose pages prepare visits. Rings are shorter, and their first round
// is in the midst of calls; longer blocks are tensors, which their first use visits in one go.
const visitMost = 32 << 20

// prepare asks for huge pages and touches every page, without changing its bytes. A kernel before
// 5.14 answers EINVAL.
func prepare(b []byte) error {
	if len(b) >= hugePage {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: a kernel without huge pages refuses it
	}
	_, err := retry(func() (int, error) { return 0, unix.Madvise(b, unix.MADV_POPULATE_WRITE) })
	if err != nil {
		return noMemory("madvise(MADV_POPULATE_WRITE)", err)
	}
	if len(b) <= visitMost {
		visit(b)
	}
	return nil
}

// allocateFile reserves the pages of a memory file on kernels that cannot populate. It goes in
// pieces because a signal makes fallocate start its piece again.
func allocateFile(fd, n int) error {
	const piece = 16 << 20
	for off := 0; off < n; off += piece {
		size := int64(min(piece, n-off))
		_, err := retry(func() (int, error) { return 0, unix.Fallocate(fd, 0, int64(off), size) })
		if err != nil {
			return noMemory("fallocate", err)
		}
	}
	return nil
}

func unmap(b []byte) error { return unix.Munmap(b) }

func closeFile(fd int) error { return unix.Close(fd) } // never retried: Linux frees fd even on EINTR

func dupFile(fd int) (int, error) {
	return retry(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) })
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// noMemory marks the errors by which the kernel says that there is no memory. EFAULT is how
// MADV_POPULATE_WRITE reports that touching a page would have raised SIGBUS.
func noMemory(call string, err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EFAULT) {
		return fmt.Errorf("%w: %s: %w", ErrNoMemory, call, err)
	}
	return fmt.Errorf("%s: %w", call, err)
}

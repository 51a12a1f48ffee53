//go:build unix && !linux

package hostmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func reserveAnonymous(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("%w: mmap: %w", ErrNoMemory, err)
	}
	return b, nil
}

func mapAnonymous(n int) ([]byte, error) {
	b, err := reserveAnonymous(n)
	if err != nil {
		return nil, err
	}
	for off := 0; off < n; off += PageSize {
		b[off] = 0
	}
	return b, nil
}

func newShared(int) ([]byte, int, error) { return nil, -1, ErrUnsupported }

func reserveShared(int) ([]byte, int, error) { return nil, -1, ErrUnsupported }

func mapShared(int, int) ([]byte, error) { return nil, ErrUnsupported }

func populate([]byte) error { return nil }

func unmap(b []byte) error { return unix.Munmap(b) }

func closeFile(fd int) error { return unix.Close(fd) }

func dupFile(int) (int, error) { return -1, ErrUnsupported }

// checkAvailable leaves the answer to mmap.
func checkAvailable(int) error { return nil }

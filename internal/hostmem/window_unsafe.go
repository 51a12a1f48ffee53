//go:build linux

package hostmem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Window is one page of address space that is never unmapped: it shows a page of another process, or
// is blank. Words in it may be touched at any time, also by who does not know yet that the window
// shows something else by now; so users need no lock or count that keeps the memory there. Whoever
// makes windows reuses them.
type Window struct{ page []byte }

// NewWindow returns a blank window: a page of zeros of this process's own.
func NewWindow() (*Window, error) {
	page, err := mapAnonymous(PageSize)
	if err != nil {
		return nil, fmt.Errorf("hostmem: window: %w", err)
	}
	account(Mapped, windowPurpose, 1, PageSize)
	return &Window{page}, nil
}

const windowPurpose = "windows"

// Bytes returns the page, whatever it shows.
func (w *Window) Bytes() []byte { return w.page }

// Show has the window show the shared block of one page behind fd, which stays the caller's. As
// MapShared it refuses other files with ErrBadFile; the window is then as before.
func (w *Window) Show(fd int) error {
	if err := checkShared(fd, PageSize); err != nil {
		return fmt.Errorf("hostmem: window: %w", err)
	}
	if err := w.replace(fd, unix.MAP_SHARED); err != nil {
		return err
	}
	_ = prepare(w.page) // a later first touch does as well
	return nil
}

// Blank has the window show a fresh page of zeros.
func (w *Window) Blank() error { return w.replace(-1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) }

// replace changes the mapping in one step (mmap(2), MAP_FIXED): at no time is nothing there.
func (w *Window) replace(fd, flags int) error {
	at := unsafe.Pointer(unsafe.SliceData(w.page))
	got, err := unix.MmapPtr(fd, 0, at, uintptr(len(w.page)), unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("hostmem: window: %w", noMemory("mmap", err))
	}
	if got != at {
		return fmt.Errorf("hostmem: window: mmap moved it from %p to %p", at, got)
	}
	return nil
}

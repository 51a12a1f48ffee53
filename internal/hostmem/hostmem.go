// Package hostmem gives memory outside the Go heap: anonymous pages, and pages that processes
// share through a file descriptor (memfd). The garbage collector neither scans nor moves it, its
// size is accounted by purpose (see [Stats]), and all of it is touched when it is made, so that a
// lack of memory is an error here and not a killed process later. [Reserve] and [ReserveShared] give
// memory of which most may never be used, and touch nothing.
//
// Shared blocks have no name in any file system: nothing is left behind by a killed process, and
// the size of /dev/shm does not matter. Their pages are charged to the memory cgroup of the
// process that made them. They are sealed against resizing, so that no process that holds the
// descriptor can make another one fault on pages that are gone.
package hostmem

import (
	"errors"
	"fmt"
	"sync"
)

// Errors of this package, for errors.Is.
var (
	// ErrNoMemory means that the machine or the memory cgroup has not as much memory to give.
	ErrNoMemory = errors.New("not enough memory")
	// ErrUnsupported means that this operating system has no shared blocks.
	ErrUnsupported = errors.New("shared memory is not supported on this operating system")
	// ErrClosed means that the block was closed.
	ErrClosed = errors.New("memory block closed")
	// ErrBadFile means that a descriptor from another process is not a sealed memory file of the
	// expected length.
	ErrBadFile = errors.New("not a sealed memory file of the expected length")
)

// maxBytes bounds a block: 2⁴⁶ bytes is half of what x86-64 and arm64 can address.
const maxBytes = 1 << 46

// smallBlock is the longest block for which nobody looks how much memory there is, which takes longer than
// making the block.
const smallBlock = 64 << 10

// Block is memory outside the Go heap. Its methods may be called from any goroutine.
type Block struct {
	b []byte // what Bytes returns while open
	m *mapping
}

// mapping is a block's pages and what there is to give back.
type mapping struct {
	mu      sync.Mutex
	pages   []byte // whole pages; nil once unmapped
	fd      int    // of a shared block; -1 if none
	kind    Kind
	purpose string
}

// Alloc returns n zeroed bytes of anonymous memory, page-aligned and touched. Large blocks ask for
// huge pages. purpose names the block in accounts and errors.
func Alloc(n int, purpose string) (*Block, error) {
	return newBlock(n, Anonymous, purpose, func(pages int) ([]byte, int, error) {
		b, err := mapAnonymous(pages)
		return b, -1, err
	})
}

// AllocShared is Alloc with memory that other processes map by its descriptor (see [Block.Dup] and
// [MapShared]).
func AllocShared(n int, purpose string) (*Block, error) {
	return newBlock(n, Shared, purpose, newShared)
}

// Reserve is Alloc without pages: each comes when it is first touched. It fails if so much memory is not
// there now, which promises nothing for later.
func Reserve(n int, purpose string) (*Block, error) {
	return newBlock(n, Anonymous, purpose, func(pages int) ([]byte, int, error) {
		b, err := reserveAnonymous(pages)
		return b, -1, err
	})
}

// ReserveShared is AllocShared without pages, as Reserve is Alloc. A page is there for all processes once
// one of them has touched it. On Linux with vm.overcommit_memory 2 it is AllocShared.
func ReserveShared(n int, purpose string) (*Block, error) {
	return newBlock(n, Shared, purpose, reserveShared)
}

// MapShared maps n bytes of a block that another process made by AllocShared, through its
// descriptor, which stays the caller's. It trusts nothing: a descriptor that is not a memory file
// of exactly the pages that n bytes need, sealed against resizing, is refused with ErrBadFile. Its pages
// become accessible at their first use, or by [Block.Populate].
func MapShared(fd, n int, purpose string) (*Block, error) {
	pages, err := wholePages(n)
	if err != nil {
		return nil, fmt.Errorf("hostmem: map %s: %w", purpose, err)
	}
	b, err := mapShared(fd, pages)
	if err != nil {
		return nil, fmt.Errorf("hostmem: map %s of %s: %w", Size(n), purpose, err)
	}
	return track(b, n, -1, Mapped, purpose), nil
}

func newBlock(n int, kind Kind, purpose string, get func(pages int) ([]byte, int, error)) (*Block, error) {
	pages, err := wholePages(n)
	if err != nil {
		return nil, fmt.Errorf("hostmem: %s: %w", purpose, err)
	}
	if pages > smallBlock {
		if err := checkAvailable(pages); err != nil {
			return nil, fmt.Errorf("hostmem: %s for %s: %w", Size(n), purpose, err)
		}
	}
	b, fd, err := get(pages)
	if err != nil {
		return nil, fmt.Errorf("hostmem: %s for %s: %w", Size(n), purpose, err)
	}
	return track(b, n, fd, kind, purpose), nil
}

func track(pages []byte, n, fd int, kind Kind, purpose string) *Block {
	account(kind, purpose, 1, len(pages))
	return &Block{b: pages[:n:n], m: &mapping{pages: pages, fd: fd, kind: kind, purpose: purpose}}
}

// wholePages rounds n up to pages, at least one.
func wholePages(n int) (int, error) {
	if n < 0 || n > maxBytes {
		return 0, fmt.Errorf("a block of %d bytes is impossible", n)
	}
	return max(1, (n+PageSize-1)/PageSize) * PageSize, nil
}

// Bytes returns the memory, nil after Close. The slice must not be used after Close: the addresses
// are gone, and a use ends the process.
func (b *Block) Bytes() []byte {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	if b.m.pages == nil {
		return nil
	}
	return b.b
}

// Dup returns a new descriptor of a shared block, close-on-exec, to be closed by the caller.
func (b *Block) Dup() (int, error) {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	switch {
	case b.m.pages == nil:
		return -1, ErrClosed
	case b.m.fd < 0:
		return -1, fmt.Errorf("hostmem: %s has no descriptor: %w", b.m.purpose, ErrUnsupported)
	}
	return dupFile(b.m.fd)
}

// CloseFile closes the descriptor of a shared block early, when everybody has it; the memory stays.
func (b *Block) CloseFile() error {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	return b.m.closeFile()
}

// Populate makes n bytes from off of a mapped block accessible at once, whole pages. Their contents stay.
func (b *Block) Populate(off, n int) error {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	if b.m.pages == nil {
		return ErrClosed
	}
	end := min((off+n+PageSize-1)/PageSize*PageSize, len(b.m.pages))
	if err := populate(b.m.pages[off/PageSize*PageSize : end]); err != nil {
		return fmt.Errorf("hostmem: %s of %s: %w", Size(n), b.m.purpose, err)
	}
	return nil
}

// Close unmaps the memory and closes the descriptor. The second and later calls do nothing.
func (b *Block) Close() error { return b.m.close() }

func (m *mapping) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		return nil
	}
	pages := m.pages
	m.pages = nil
	account(m.kind, m.purpose, -1, -len(pages))
	return errors.Join(m.closeFile(), unmap(pages))
}

func (m *mapping) closeFile() error {
	if m.fd < 0 {
		return nil
	}
	fd := m.fd
	m.fd = -1
	return closeFile(fd)
}

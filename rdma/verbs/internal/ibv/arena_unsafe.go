package ibv

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arena is zeroed memory outside the Go heap, where everything lies that C sees: a goroutine's stack
// moves, and the heap belongs to the garbage collector. It only grows, and is freed whole.
type Arena struct {
	mem  []byte
	used int
}

// NewArena maps at least n bytes.
func NewArena(n int) (*Arena, error) {
	page := unix.Getpagesize()
	m, err := unix.Mmap(-1, 0, (n+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	return &Arena{mem: m}, nil
}

// Free unmaps the arena and everything carved from it.
func (a *Arena) Free() error {
	m := a.mem
	a.mem = nil
	if m == nil {
		return nil
	}
	return unix.Munmap(m)
}

// Carve takes n zeroed Ts, 64-byte aligned, from the arena. It panics if they do not fit: whoever
// makes the arena knows what goes into it.
func Carve[T any](a *Arena, n int) []T {
	var t T
	size := (n*int(unsafe.Sizeof(t)) + 63) &^ 63
	if a.used+size > len(a.mem) {
		panic("ibv: arena too small")
	}
	p := unsafe.Pointer(&a.mem[a.used])
	a.used += size
	return unsafe.Slice((*T)(p), n)
}

// Bytes is what Carve takes for n Ts.
func Bytes[T any](n int) int {
	var t T
	return (n*int(unsafe.Sizeof(t)) + 63) &^ 63
}

// Addr is the address of s[0]; 0 if s is empty. It keeps nothing alive.
func Addr[T any](s []T) uintptr {
	if len(s) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(s)))
}

// peek reads a field of a C structure at p.
func peek[T any](p, offset uintptr) T {
	return *(*T)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&p)), offset))
}

// cstring copies the C string at p.
func cstring(p uintptr) string {
	var b []byte
	for i := uintptr(0); ; i++ {
		c := peek[byte](p, i)
		if c == 0 {
			return string(b)
		}
		b = append(b, c)
	}
}

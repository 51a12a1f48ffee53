package hostmem

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Word64 returns the 8 bytes of b at off as an atomic word. It panics if they are not inside b or not
// 8-byte aligned: offsets are the caller's own, never a peer's. The word is valid as long as b.
func Word64(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(at(b, off, 8, 8))
}

// Word32 is Word64 for 4 bytes.
func Word32(b []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(at(b, off, 4, 4))
}

// Words64 returns n consecutive atomic words of b from off, as Word64 does.
func Words64(b []byte, off, n int) []atomic.Uint64 {
	if n == 0 {
		return nil
	}
	if n < 0 || n > len(b)/8 {
		panic(fmt.Sprintf("hostmem: %d words in %d bytes", n, len(b)))
	}
	return unsafe.Slice((*atomic.Uint64)(at(b, off, 8*n, 8)), n)
}

// Offset tells whether inner lies inside outer and where it begins there. An empty inner lies in
// everything, at 0.
func Offset(outer, inner []byte) (int, bool) {
	if len(inner) == 0 {
		return 0, true
	}
	o, i := uintptr(unsafe.Pointer(unsafe.SliceData(outer))), uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	if i < o || i-o > uintptr(len(outer)) || uintptr(len(inner)) > uintptr(len(outer))-(i-o) {
		return 0, false
	}
	return int(i - o), true
}

// Addr is the address of b's first byte, to be handed to C with memory outside the Go heap. It keeps
// nothing alive.
func Addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func at(b []byte, off, n, align int) unsafe.Pointer {
	if off < 0 || off > len(b)-n {
		panic(fmt.Sprintf("hostmem: word [%d, %d) outside %d bytes", off, off+n, len(b)))
	}
	p := unsafe.Pointer(&b[off])
	if uintptr(p)%uintptr(align) != 0 {
		panic(fmt.Sprintf("hostmem: word at offset %d is not %d-byte aligned", off, align))
	}
	return p
}

package link

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// headerAt views 64 bytes of registered memory as a slot header. b must be 64-byte aligned; memory
// outside the Go heap, or bytes that stay reachable, so that the pointer stays valid.
func headerAt(b []byte) *header {
	if len(b) < lineBytes || uintptr(unsafe.Pointer(&b[0]))%lineBytes != 0 {
		panic(fmt.Sprintf("link: header of %d bytes at %p is not a cache line", len(b), &b[0]))
	}
	return (*header)(unsafe.Pointer(&b[0]))
}

// wordAt views the first eight bytes of b, 8-byte aligned, as an atomic word.
func wordAt(b []byte) *atomic.Uint64 {
	if len(b) < 8 || uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		panic(fmt.Sprintf("link: word of %d bytes at %p is not aligned", len(b), &b[0]))
	}
	return (*atomic.Uint64)(unsafe.Pointer(&b[0]))
}

// addressOf is where b begins in this process. It keeps nothing alive.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// bytes views the inline area of a header as payload.
func (h *header) bytes() []byte { return (*[InlineBytes]byte)(unsafe.Pointer(&h.inline))[:] }

// rest views what follows the publication word as payload.
func (h *header) rest() []byte { return (*[restBytes]byte)(unsafe.Pointer(&h.call))[:] }

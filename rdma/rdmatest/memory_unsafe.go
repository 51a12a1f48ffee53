package rdmatest

import (
	"sync/atomic"
	"unsafe"
)

// This file holds what needs addresses.

// word returns the 8 bytes at offset, a multiple of 8, as an atomic word.
func word(b []byte, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b[offset : offset+8][0]))
}

// address returns where b begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

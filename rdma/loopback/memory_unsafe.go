package loopback

import (
	"sync/atomic"
	"unsafe"
)

// This file holds what needs addresses: alignment, containment and stores of whole words.

const pageSize = 4096

// pages returns n zeroed bytes at a page-aligned address on the Go heap. The heap does not move.
func pages(n int) []byte {
	b := make([]byte, n+pageSize-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % pageSize)
	return b[skip : skip+n : skip+n]
}

// inside tells whether part lies in whole. An empty part lies in anything.
func inside(whole, part []byte) bool {
	if len(part) == 0 {
		return true
	}
	w, p := uintptr(unsafe.Pointer(unsafe.SliceData(whole))), uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	return p >= w && p-w <= uintptr(len(whole)) && uintptr(len(part)) <= uintptr(len(whole))-(p-w)
}

// wordsMost is the longest write that is stored word by word.
const wordsMost = 4 << 10

// store copies src to dst, which are equally long. Whoever polls memory may look at words that a write is about to change, as on
// hardware, so that aligned words of short writes are atomic stores; what is longer nobody looks at before it is complete.
func store(dst, src []byte) {
	p := unsafe.Pointer(unsafe.SliceData(dst))
	if len(src) == 4 && uintptr(p)%4 == 0 {
		var v uint32
		copy((*[4]byte)(unsafe.Pointer(&v))[:], src)
		atomic.StoreUint32((*uint32)(p), v)
		return
	}
	if uintptr(p)%8 == 0 && len(src) <= wordsMost {
		for len(src) >= 8 {
			var v uint64
			copy((*[8]byte)(unsafe.Pointer(&v))[:], src)
			atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(dst))), v)
			dst, src = dst[8:], src[8:]
		}
	}
	copy(dst, src)
}

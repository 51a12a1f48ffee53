package tensor

import "unsafe"

// bytesOf is the memory of s.
func bytesOf[T Element](s []T) []byte {
	n := len(s) * int(unsafe.Sizeof(*new(T)))
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), n)
}

// elements is b as elements of T; b is aligned for T and a whole number of elements long.
func elements[T Element](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}

// aligned reports whether b starts at an address that is aligned for T.
func aligned[T Element](b []byte) bool {
	return addr(b)%unsafe.Alignof(*new(T)) == 0
}

// addr is the address of b's first byte, for comparing and for alignment only.
func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// alignedBytes is n bytes of new memory, aligned for every element type; n is a multiple of 8.
func alignedBytes(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8)))), n)
}

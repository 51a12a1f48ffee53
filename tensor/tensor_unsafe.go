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

// inHost is the view of b.
func inHost(dt DType, b []byte) Tensor {
	return Tensor{first: unsafe.SliceData(b), n: len(b), dt: dt}
}

// span is the n bytes from first on, or nil if they are not the host's.
func span(first *byte, n int, host bool) []byte {
	if !host {
		return nil
	}
	return unsafe.Slice(first, n)
}

// address is where first points, for comparing only.
func address(first *byte) uint64 { return uint64(uintptr(unsafe.Pointer(first))) }

// alignedBytes is n bytes of new memory, aligned for every element type; n is a multiple of 8.
func alignedBytes(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8)))), n)
}

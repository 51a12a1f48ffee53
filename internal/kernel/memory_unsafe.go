package kernel

import "unsafe"

type number interface{ integer | float32 | float64 }

func sizeOf[T number]() int {
	var x T
	return int(unsafe.Sizeof(x))
}

// bytesOf is the memory of s.
func bytesOf[T number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// load copies the elements in b to the front of buf and returns them.
func load[T number](buf []T, b []byte) []T {
	return buf[:copy(bytesOf(buf), b)/sizeOf[T]()]
}

// view returns the elements in b, to be read only: b itself where it is aligned for T, else a copy
// in buf.
func view[T number](buf []T, b []byte) []T {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(buf[0]) != 0 {
		return load(buf, b)
	}
	return unsafe.Slice((*T)(p), len(b)/sizeOf[T]())
}

// store copies a to every destination, from byte off on.
func store[T number](dsts [][]byte, off int, a []T) {
	b := bytesOf(a)
	for _, d := range dsts {
		copy(d[off:], b)
	}
}

// address is where b starts, to reckon alignment with.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

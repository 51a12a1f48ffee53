//go:build linux && (amd64 || arm64) && !noverbs

package ccall

import "unsafe"

// cgocall has the runtime call a function in C's convention with one argument, on a stack of the system's.
// It is open to packages outside (go.dev/issue/67401), as purego uses it.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// Call calls the function, and returns what it returns as an int. The thread may block in it.
func (l *List) Call() int32 { return cgocall(trampoline, unsafe.Pointer(l)) }

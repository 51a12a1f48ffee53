//go:build linux && (amd64 || arm64) && !noverbs

// Package ccall calls C functions of up to three integer or pointer arguments from prepared lists: what
// purego.SyscallN does, without its copies of some forty words and its pool, for calls that are made for each
// message. It is a package of its own because cgo does not allow Go's assembler beside it.
package ccall

import _ "github.com/ebitengine/purego" // makes the runtime ready to call C without cgo

// List is a call that is made again and again. It lies on the heap; every pointer among the arguments leads
// outside of what Go manages. trampoline_*.s know the layout.
type List struct {
	Fn   uintptr
	Args [3]uintptr
}

// trampoline is the address of the code that makes a call for the runtime.
var trampoline uintptr

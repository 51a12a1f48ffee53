//go:build !linux || !(amd64 || arm64) || noverbs

// Package ccall calls C functions from prepared lists; here there are none.
package ccall

// List is a call that is made again and again.
type List struct {
	Fn   uintptr
	Args [3]uintptr
}

// Call panics: no function was found.
func (l *List) Call() int32 { panic("ccall: called without a library") }

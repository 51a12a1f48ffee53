//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import "github.com/ebitengine/purego"

// call calls a C function with integer and pointer arguments. The arguments are a slice that already
// exists, so that a call allocates nothing; every pointer among them leads outside the Go heap and stack.
func call(fn uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

func dlopen(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func dlsym(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }

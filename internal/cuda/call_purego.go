//go:build cuda && linux && (amd64 || arm64)

package cuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// call calls a C function with integer and pointer arguments; pointers lead outside the Go heap and stack.
func call(fn uintptr, args ...uintptr) Result {
	r, _, _ := purego.SyscallN(fn, args...)
	return Result(uint32(r))
}

func dlopen(name string) (uintptr, error) {
	runtime.LockOSThread() // what dlopen has to say of its failure, it says to the thread
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func dlsym(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }

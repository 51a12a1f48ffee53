//go:build cuda && !(linux && (amd64 || arm64))

package cuda

import (
	"errors"
	"runtime"
)

var errBuild = errors.New("CUDA devices need linux/amd64 or linux/arm64, this is " + runtime.GOOS + "/" + runtime.GOARCH)

func call(uintptr, ...uintptr) Result { panic("cuda: called without a library") }

func dlopen(string) (uintptr, error) { return 0, errBuild }

func dlsym(uintptr, string) (uintptr, error) { return 0, errBuild }

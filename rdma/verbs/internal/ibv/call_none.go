//go:build !linux || !(amd64 || arm64) || noverbs

package ibv

import (
	"errors"
	"runtime"
)

var errBuild = errors.New("this program was built without verbs (" + runtime.GOOS + "/" + runtime.GOARCH +
	", or build tag noverbs)")

func call(uintptr, []uintptr) uintptr { panic("ibv: called without a library") }

func dlopen(string) (uintptr, error) { return 0, errBuild }

func dlsym(uintptr, string) (uintptr, error) { return 0, errBuild }

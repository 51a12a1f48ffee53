//go:build !linux || !(amd64 || arm64) || noverbs

package ibv

func call(uintptr, []uintptr) uintptr { panic("ibv: called without a library") }

func dlopen(string) (uintptr, error) { return 0, ErrBuild }

func dlsym(uintptr, string) (uintptr, error) { return 0, ErrBuild }

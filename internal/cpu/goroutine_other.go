//go:build !(amd64 || arm64) || purego || race

package cpu

// Goroutine returns 0: there is no such number here.
func Goroutine() uintptr { return 0 }

//go:build (amd64 || arm64) && !purego && !race

package cpu

// Goroutine returns a number that no other running goroutine has; one that begins later may have it again. It is 0
// where there is none to be had, and under the race detector, which knows nothing of what it serves for.
//
//go:noescape
func Goroutine() uintptr

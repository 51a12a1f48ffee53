//go:build !(amd64 || arm64) || purego

package cpu

// Pause does nothing on this architecture or under the purego tag.
func Pause(n int) {}

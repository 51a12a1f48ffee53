//go:build !linux

package cpu

// ReceiveFences reports that there are no fences on this system.
func ReceiveFences() bool { return false }

// FenceOthers does nothing, as nobody receives fences.
func FenceOthers() {}

//go:build !linux

package cpu

import "runtime"

// Allowed returns as many processors as this process may use; which ones is not known.
func Allowed() Set { return First(runtime.NumCPU()) }

//go:build !linux

package cpu

import "runtime"

// Yield lets other goroutines run.
func Yield() { runtime.Gosched() }

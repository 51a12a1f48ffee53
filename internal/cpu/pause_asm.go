//go:build (amd64 || arm64) && !purego

package cpu

// Pause executes the processor's spin-wait hint n times (PAUSE on amd64, YIELD on arm64, nothing
// elsewhere), so that a spinning core leaves the memory bus and its sibling thread alone. One
// PAUSE lasts about 10 to 60 ns on current amd64 processors, one YIELD about 1 ns. It returns at
// once for n <= 0. The goroutine cannot be preempted inside, so n should stay below about 1000.
//
//go:noescape
func Pause(n int)

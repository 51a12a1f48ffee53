package cpu

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Allowed returns the processors that this process may run on: the affinity of its main thread, as a
// launcher has bound it.
func Allowed() Set {
	var mask unix.CPUSet
	if unix.SchedGetaffinity(os.Getpid(), &mask) != nil {
		return First(runtime.NumCPU())
	}
	var s Set
	for i := range 1024 {
		if mask.IsSet(i) {
			one := make(Set, i/64+1)
			one[i/64] = 1 << (i % 64)
			s = s.Union(one)
		}
	}
	return s
}

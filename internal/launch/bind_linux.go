package launch

import "golang.org/x/sys/unix"

// affinity keeps the calling thread, and the processes that it starts, on the r-th, modulo their count,
// of the cores that it may use, until restore is called. The caller has locked its thread.
func affinity(r int) (restore func()) {
	var had unix.CPUSet
	if unix.SchedGetaffinity(0, &had) != nil {
		return func() {}
	}
	var one unix.CPUSet
	one.Set(nth(&had, r))
	_ = unix.SchedSetaffinity(0, &one)
	return func() { _ = unix.SchedSetaffinity(0, &had) }
}

func nth(set *unix.CPUSet, r int) int {
	r %= set.Count()
	c := 0
	for ; r > 0 || !set.IsSet(c); c++ {
		if set.IsSet(c) {
			r--
		}
	}
	return c
}

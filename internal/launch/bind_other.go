//go:build !linux

package launch

// affinity does nothing: the system has no such call.
func affinity(int) (restore func()) { return func() {} }

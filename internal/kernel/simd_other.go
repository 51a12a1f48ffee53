//go:build !amd64 || purego || race

package kernel

// foldVector has no assembly to call in this build.
func foldVector(t Type, op Op, dsts, srcs [][]byte, nt bool) bool { return false }

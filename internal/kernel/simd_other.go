//go:build !amd64 || purego || race

package kernel

// This build has no assembly to call.

func foldVector(t Type, op Op, dsts, srcs [][]byte, nt bool) bool { return false }
func scaleVector(t Type, dst, src []byte, by float64) bool        { return false }
func divideVector(t Type, b []byte, by float64) bool              { return false }

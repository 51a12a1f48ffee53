package tensor

import (
	"fmt"
	"testing"
)

// BenchmarkReduce is the cost of a call on small buffers, checks and dispatch included.
func BenchmarkReduce(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := mustReducer(b, Float32, Sum, 2)
			dsts, srcs := [][]byte{make([]byte, n)}, [][]byte{make([]byte, n), make([]byte, n)}
			b.SetBytes(int64(n))
			for b.Loop() {
				r.Reduce(dsts, srcs)
			}
		})
	}
}

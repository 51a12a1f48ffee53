package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkFold reports the payload rate: bytes of one operand a second.
func BenchmarkFold(b *testing.B) {
	for _, dt := range []Type{Float32, Float64, Float16, BFloat16, Int32, Float8E4M3} {
		for _, op := range []Op{Sum, Max} {
			for _, n := range []int{64 << 10, 4 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%dKiB", typeName(dt), opNames[op], n>>10), func(b *testing.B) {
					x, y := make([]byte, n), make([]byte, n)
					dsts, srcs := [][]byte{x}, [][]byte{x, y}
					b.SetBytes(int64(n))
					for b.Loop() {
						Fold(dt, op, dsts, srcs)
					}
				})
			}
		}
	}
}

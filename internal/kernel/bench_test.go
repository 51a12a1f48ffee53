package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkFold reports the payload rate, the bytes of one operand in a second, of a ⊕= b.
func BenchmarkFold(b *testing.B) {
	for _, dt := range []Type{Float32, Float64, Float16, BFloat16, Int32, Int64, Float8E4M3, Float8E5M2} {
		for _, op := range []Op{Sum, Prod, Max} {
			for _, n := range []int{64 << 10, 4 << 20} {
				benchFold(b, dt, op, 1, 2, n, true, false)
			}
		}
	}
}

// BenchmarkShapes is Sum of float32 with other numbers of operands and destinations, none aliased.
func BenchmarkShapes(b *testing.B) {
	for _, shape := range []struct{ dsts, srcs int }{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 3}, {1, 4}, {1, 8}, {1, 16}} {
		for _, n := range []int{8, 256, 4 << 10, 64 << 10, 4 << 20, 64 << 20} {
			if n*(shape.dsts+shape.srcs) <= 400<<20 {
				for _, nt := range []bool{false, true} {
					if !nt || n > 1<<20 {
						benchFold(b, Float32, Sum, shape.dsts, shape.srcs, n, false, nt)
					}
				}
			}
		}
	}
}

func benchFold(b *testing.B, dt Type, op Op, dsts, srcs, n int, inPlace, nt bool) {
	stores := ""
	if nt {
		stores = "/nt"
	}
	b.Run(fmt.Sprintf("%s/%s/%dto%d/%d%s", typeName(dt), opNames[op], srcs, dsts, n, stores), func(b *testing.B) {
		s, d := make([][]byte, srcs), make([][]byte, dsts)
		for i := range s {
			s[i] = make([]byte, n)
			for j := range n / dt.Size() {
				putCode(dt, s[i], j, 1<<(8*dt.Size()-3)) // 2.0 or 1.0, or an integer
			}
		}
		for i := range d {
			d[i] = make([]byte, n)
		}
		if inPlace {
			d[0] = s[0]
		}
		b.SetBytes(int64(n))
		for b.Loop() {
			Fold(dt, op, d, s, nt)
		}
	})
}

// BenchmarkScale reports the rate of Scale and Divide in place.
func BenchmarkScale(b *testing.B) {
	for _, dt := range []Type{Float32, Float64, Float16, BFloat16, Float8E4M3, Float8E5M2} {
		for _, n := range []int{64 << 10, 4 << 20} {
			buf := make([]byte, n)
			b.Run(fmt.Sprintf("%s/times/%d", typeName(dt), n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					Scale(dt, buf, buf, 0.5)
				}
			})
			b.Run(fmt.Sprintf("%s/over/%d", typeName(dt), n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					Divide(dt, buf, 0.75)
				}
			})
		}
	}
}

//go:build linux

package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/gccl/gccl/rdma"
)

// BenchmarkSockets is what several sockets cost: half a round trip of signaled writes, each end waiting for its own
// to be complete as well, with one and two sockets in turns.
func BenchmarkSockets(b *testing.B) {
	for _, size := range []int{8, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			const turn = 200
			var x, y [2]*end
			for i := range x {
				x[i], y[i] = newEnds(b, Options{Sockets: i + 1}, size)
			}
			// run moves messages one after the other; the end that answers begins when one has come.
			run := func(from, to *end, answers bool) {
				w := [1]rdma.Write{{Local: from.mem.Bytes(), Region: from.mem, Remote: to.mem.Remote(), HasImm: true, Signaled: true}}
				posted, wrote, received := 0, 0, 0
				for wrote < turn || received < turn {
					if next := min(wrote, received) == posted && !answers; posted < turn && (next || answers && received > posted) {
						if n, err := from.ep.Post(w[:]); n != 1 {
							panic(err)
						}
						posted++
					}
					n, err := from.cq.Poll(from.cs[:])
					if err != nil {
						panic(err)
					}
					for _, c := range from.cs[:n] {
						if c.Kind == rdma.Received {
							received++
						} else {
							wrote++
						}
					}
				}
			}
			var took [2]time.Duration
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range b.N {
					for i := range x {
						run(y[i], x[i], true)
					}
				}
			}()
			for range b.N {
				for i := range x {
					start := time.Now()
					run(x[i], y[i], false)
					took[i] += time.Since(start)
				}
			}
			<-done
			for i, d := range took {
				b.ReportMetric(float64(d.Nanoseconds())/float64(2*turn*b.N), fmt.Sprintf("ns/half-%d-sockets", i+1))
			}
		})
	}
}

//go:build linux

package tcp

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// cpuTime is what the calling thread has used.
func cpuTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// BenchmarkCost drives both ends from one thread and reports processor time for a message, raw and
// ours in turns: unlike the elapsed time of two threads, it means something on a busy machine.
func BenchmarkCost(b *testing.B) {
	for _, opts := range []Options{{}, {Sockets: 2}, {Checksum: true}} {
		for _, size := range []int{8, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			if (opts.Sockets > 0 || opts.Checksum) && size < 256<<10 {
				continue
			}
			b.Run(fmt.Sprintf("sockets=%d,crc=%v/%d", max(1, opts.Sockets), opts.Checksum, size), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				fa, fb := rawPair(b)
				x, y := newEnds(b, opts, size)
				src, dst := touched(size), touched(size)
				turn := max(1, min(500, 16<<20/size))
				var raw, ours time.Duration
				var va, vb vectors
				for range b.N {
					start := cpuTime()
					for range turn {
						for out, in := src, dst; len(in) > 0; {
							if len(out) > 0 {
								n, _ := va.send(fa, out, nil, nil)
								out = out[n:]
							}
							n, _ := vb.recv(fb, in, nil)
							in = in[n:]
						}
					}
					mid := cpuTime()
					for i := range turn {
						w := [1]rdma.Write{{Local: x.mem.Bytes(), Region: x.mem, Remote: y.mem.Remote(), HasImm: true, Signaled: i%32 == 0}}
						n, err := x.ep.Post(w[:])
						if n != 1 || err != nil {
							b.Fatal(n, err)
						}
						for left := 1; left > 0; {
							n, _ := y.cq.Poll(y.cs[:])
							left -= n
							if x.ep.tx.wants.Load() {
								_, _ = x.cq.Poll(x.cs[:])
							}
						}
						if x.ep.tx.harvest.Load() {
							_, _ = x.cq.Poll(x.cs[:])
						}
					}
					raw += mid - start
					ours += cpuTime() - mid
				}
				each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(turn*b.N) }
				b.ReportMetric(each(raw), "raw-cpu-ns")
				b.ReportMetric(each(ours), "cpu-ns")
				b.ReportMetric(each(ours)/each(raw), "ratio")
			})
		}
	}
}

// BenchmarkPoll shows what an empty Poll costs with many connections, and a Poll that finds a message on
// one of them, which is another one each time.
func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{1, 2, 3, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			x, y := newEnds(b, Options{}, 4096)
			froms := []*endpoint{x.ep}
			for range n - 1 {
				from, to := x.endpoint(b), y.endpoint(b)
				join(b, from, to)
				froms = append(froms, from)
			}
			var empty, busy time.Duration
			for i := range b.N {
				start := cpuTime()
				for range 100 {
					_, _ = y.cq.Poll(y.cs[:])
				}
				empty += cpuTime() - start
				w := [1]rdma.Write{{HasImm: true}}
				_, _ = froms[i%n].Post(w[:])
				start = cpuTime()
				require.NoError(b, y.awaitReceived(1))
				busy += cpuTime() - start
			}
			b.ReportMetric(float64(empty.Nanoseconds())/float64(100*b.N), "empty-cpu-ns")
			b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "found-cpu-ns")
		})
	}
}

//go:build unix

package collective_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"golang.org/x/sys/unix"
)

// lateBy is how long the others of workLate let rank 0 wait.
const lateBy = time.Second

// workLate has rank 0 wait in a call for ranks that are late, and say what it burnt meanwhile.
func workLate(ctx context.Context, c *collective.Comm) error {
	x := make([]float32, 2)
	call := func() error { return c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum) }
	for range 3 {
		if err := call(); err != nil {
			return err
		}
	}
	if c.Rank() != 0 {
		time.Sleep(lateBy)
		return call()
	}
	before, start := cpuTime(), time.Now()
	if err := call(); err != nil {
		return err
	}
	fmt.Printf("burnt %.3f\n", 100*float64(cpuTime()-before)/float64(time.Since(start)))
	return nil
}

// cpuTime is what this process has used of all cores.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLatePeer reports how much of a core a rank burns that waits a second for its peers, the
// background work of the whole process included.
func BenchmarkLatePeer(b *testing.B) {
	for _, provider := range []string{"shm", "tcp"} {
		for _, n := range []int{2, 4} {
			b.Run(fmt.Sprintf("%s/ranks=%d", provider, n), func(b *testing.B) {
				sum, runs := 0.0, 0
				for b.Loop() {
					var out output
					j := job("late", n, &out)
					j.Env = append(j.Env, "GCCL_PROVIDER="+provider)
					if err := j.Run(context.Background()); err != nil {
						b.Fatalf("%v\n%s", err, &out)
					}
					m := regexp.MustCompile(`burnt ([0-9.]+)`).FindStringSubmatch(out.String())
					if m == nil {
						b.Fatalf("rank 0 said nothing:\n%s", &out)
					}
					v, err := strconv.ParseFloat(m[1], 64)
					if err != nil {
						b.Fatal(err)
					}
					sum, runs = sum+v, runs+1
				}
				b.ReportMetric(sum/float64(runs), "%core")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

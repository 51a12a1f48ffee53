package collective_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// BenchmarkInit measures how long ranks that are goroutines take to make a communicator, and their
// first AllReduce, which makes the links that it wants.
func BenchmarkInit(b *testing.B) {
	for _, size := range []int{16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("%d ranks", size), func(b *testing.B) {
			var made, first, second time.Duration
			for b.Loop() {
				start := time.Now()
				comms, err := collective.NewLocal(context.Background(), size, collective.Config{})
				require.NoError(b, err)
				made += time.Since(start)
				for _, d := range []*time.Duration{&first, &second} {
					start = time.Now()
					var wg sync.WaitGroup
					for _, c := range comms {
						wg.Go(func() {
							x := []int64{1}
							if err := c.AllReduce(context.Background(), tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil || x[0] != int64(size) {
								b.Errorf("rank %d: %d, %v", c.Rank(), x[0], err)
							}
						})
					}
					wg.Wait()
					*d += time.Since(start)
				}
				for _, c := range comms {
					require.NoError(b, c.Close())
				}
			}
			ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(ms(made), "new-ms/op")
			b.ReportMetric(ms(first), "first-ms/op")
			b.ReportMetric(ms(second), "second-ms/op")
		})
	}
}

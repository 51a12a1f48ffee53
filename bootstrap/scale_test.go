package bootstrap

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkConnect measures how long all ranks of a group on one host, each with its own connections,
// take to connect and to exchange 256 bytes each.
func BenchmarkConnect(b *testing.B) {
	for _, size := range []int{16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("%d ranks", size), func(b *testing.B) {
			var connect, gather time.Duration
			for b.Loop() {
				start := time.Now()
				groups, errs := connectAll(b, size, nil)
				connect += time.Since(start)
				for _, err := range errs {
					require.NoError(b, err)
				}
				start = time.Now()
				failed := make([]error, size)
				each(groups, func(g Group) { _, failed[g.Rank()] = g.AllGather(context.Background(), make([]byte, 256)) })
				gather += time.Since(start)
				for _, err := range failed {
					require.NoError(b, err)
				}
				closeGroups(groups)
			}
			b.ReportMetric(connect.Seconds()*1e3/float64(b.N), "connect-ms/op")
			b.ReportMetric(gather.Seconds()*1e3/float64(b.N), "gather-ms/op")
		})
	}
}

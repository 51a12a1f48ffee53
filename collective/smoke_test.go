package collective

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	for n := 1; n <= 5; n++ {
		comms, err := NewLocal(context.Background(), n, Config{Timeout: 5 * time.Second})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, count := range []int{0, 1, 7, 8, 100, 5000, 1 << 20} {
			for _, c := range comms {
				wg.Go(func() {
					src, dst := make([]float32, count), make([]float32, count)
					for i := range src {
						src[i] = float32(c.Rank() + i)
					}
					if err := c.AllReduce(context.Background(), tensor.Of(dst), tensor.Of(src), tensor.Sum); err != nil {
						t.Error(n, count, err)
						return
					}
					for i := range dst {
						want := float32(n*i + n*(n-1)/2)
						if dst[i] != want {
							t.Errorf("n %d count %d rank %d [%d] = %v want %v", n, count, c.Rank(), i, dst[i], want)
							break
						}
					}
				})
			}
			wg.Wait()
		}
		for _, c := range comms {
			require.NoError(t, c.Close())
		}
	}
}

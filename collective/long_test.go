package collective

import (
	"context"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// Results that are long enough to be written past the caches are right to the last element, wherever they begin.
func TestLongResults(t *testing.T) {
	const ranks, count = 3, 4<<20 + 5
	ctx := context.Background()
	comms := local(t, ranks, Config{Timeout: time.Minute})
	value := func(rank, i int) float32 { return float32((i*7 + 3*rank) % 251) }
	ins, outs, alls := make([][]float32, ranks), make([][]float32, ranks), make([][]float32, ranks)
	for r := range ranks {
		ins[r], outs[r], alls[r] = make([]float32, count), make([]float32, count+1)[1:], make([]float32, ranks*(count/ranks))
		for i := range ins[r] {
			ins[r][i] = value(r, i)
		}
	}
	calls := []struct {
		name string
		call func(c *Comm, in, out, all tensor.Tensor) error
		want func(i int) float32
		all  bool
	}{
		{"AllReduce", func(c *Comm, in, out, _ tensor.Tensor) error { return c.AllReduce(ctx, out, in, tensor.Sum) },
			func(i int) float32 { return value(0, i) + value(1, i) + value(2, i) }, false},
		{"Avg", func(c *Comm, in, out, _ tensor.Tensor) error { return c.AllReduce(ctx, out, in, tensor.Avg) },
			func(i int) float32 { return (value(0, i) + value(1, i) + value(2, i)) / 3 }, false},
		{"Broadcast", func(c *Comm, in, out, _ tensor.Tensor) error { return c.Broadcast(ctx, out, in, 1) },
			func(i int) float32 { return value(1, i) }, false},
		{"AllGather", func(c *Comm, in, _, all tensor.Tensor) error {
			return c.AllGather(ctx, all, in.Slice(0, count/ranks))
		}, func(i int) float32 { return value(i/(count/ranks), i%(count/ranks)) }, true},
	}
	for _, tc := range calls {
		each(t, comms, func(c *Comm) error {
			return tc.call(c, tensor.Of(ins[c.rank]), tensor.Of(outs[c.rank]), tensor.Of(alls[c.rank]))
		})
		for r := range ranks {
			got := outs[r]
			if tc.all {
				got = alls[r]
			}
			for i, v := range got {
				if want := tc.want(i); v != want {
					require.InDelta(t, want, v, 1e-4, "%s: rank %d, element %d", tc.name, r, i)
				}
			}
		}
	}
}

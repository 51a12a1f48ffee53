//go:build !cuda

package collective

import (
	"context"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// Without the tag a tensor on a device is refused before anything is sent, and the communicator goes on.
func TestDeviceTensorsNeedTheTag(t *testing.T) {
	ctx := context.Background()
	d, err := tensor.OnDevice(tensor.Float32, tensor.CUDA(0), 1<<20, 4)
	require.NoError(t, err)
	h := tensor.Of(make([]float32, 4))
	comms := local(t, 2, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		prepared, err := c.Prepare(Call{Kind: AllReduce, Dst: d, Src: h, Op: tensor.Sum})
		if err != nil {
			return err
		}
		for _, err := range []error{
			c.AllReduce(ctx, d, d, tensor.Sum),
			c.AllReduce(ctx, d, h, tensor.Sum),
			c.Send(ctx, d, 1-c.rank),
			c.Group(ctx, Call{Kind: AllReduce, Dst: h, Src: d, Op: tensor.Sum}),
			c.SendRecv(ctx, d, c.rank, h, c.rank),
			prepared.Run(ctx),
		} {
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorContains(t, err, "-tags cuda")
		}
		return c.AllReduce(ctx, h, h, tensor.Sum)
	})
}

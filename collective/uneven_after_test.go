package collective

import (
	"context"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// What a rank called before leaves no trace in a call with counts, whose lengths not all ranks know.
func TestUnevenAfterDifferentTransfers(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 3, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		switch c.rank {
		case 0:
			if err := c.Send(ctx, tensor.Of(ramp(17, 0)), 1); err != nil {
				return err
			}
		case 1:
			if err := c.Recv(ctx, tensor.Of(make([]int32, 17)), 0); err != nil {
				return err
			}
		}
		counts := []int{1, 2, 3}
		all := make([]int32, 6)
		if err := c.GatherV(ctx, tensor.Of(all), tensor.Of(ramp(c.rank+1, 10*c.rank)), counts, 0); err != nil {
			return err
		}
		if c.rank == 0 {
			require.Equal(t, []int32{0, 10, 11, 20, 21, 22}, all)
		}
		same := []int{1, 1, 1}
		return c.AllToAllV(ctx, tensor.Of(all[:3]), tensor.Of(ramp(3, 0)), same, same)
	})
}

// A Call of GatherV or ScatterV takes an empty list where only the root knows the counts, and tensors that a rank
// does not use may be left out.
func TestUnevenCallsOfRoots(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 3, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		mine := ramp(c.rank+1, 10*c.rank)
		back := make([]int32, c.rank+1)
		gather := Call{Kind: Gather, Src: tensor.Of(mine), Root: 1, Counts: []int{}}
		scatter := Call{Kind: Scatter, Dst: tensor.Of(back), Root: 1, Counts: []int{}}
		all := make([]int32, 6)
		if c.rank == 1 {
			gather.Dst, gather.Counts = tensor.Of(all), []int{1, 2, 3}
			scatter.Src, scatter.Counts = tensor.Of(all), []int{1, 2, 3}
		}
		if err := c.Start(ctx, gather).Wait(ctx); err != nil {
			return err
		}
		if err := c.Start(ctx, scatter).Wait(ctx); err != nil {
			return err
		}
		require.Equal(t, mine, back)
		if c.rank == 1 {
			require.Equal(t, []int32{0, 10, 11, 20, 21, 22}, all)
		}
		return nil
	})
}

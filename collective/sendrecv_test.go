package collective

import (
	"fmt"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// A SendRecv like the one before it takes a short way. Whatever comes between, or differs, the right bytes arrive.
func TestSendRecvAgain(t *testing.T) {
	comms := local(t, 3, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		ctx := t.Context()
		x, y, z := make([]byte, 600), make([]byte, 600), make([]byte, 600)
		step := byte(0)
		exchange := func(dst, src []byte, by int) error {
			step++
			for i := range src {
				src[i] = step*3 + byte(c.rank)
			}
			from := (c.rank - by + 3) % 3
			if err := c.SendRecv(ctx, tensor.Of(src), (c.rank+by)%3, tensor.Of(dst), from); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			for i := range dst {
				if dst[i] != step*3+byte(from) {
					return fmt.Errorf("step %d: element %d from rank %d is %d", step, i, from, dst[i])
				}
			}
			return nil
		}
		var registered tensor.Tensor
		between := []func() error{
			func() error { return nil },
			func() error { return c.Barrier(ctx) },
			func() error {
				return c.Group(ctx, Call{Kind: Send, Src: tensor.Of(x[:3]), Peer: (c.rank + 1) % 3},
					Call{Kind: Recv, Dst: tensor.Of(z[:3]), Peer: (c.rank + 2) % 3}, Call{Kind: Barrier})
			},
			func() error { return c.SendRecv(ctx, tensor.Of(x), c.rank, tensor.Of(z), c.rank) },
			func() error {
				if err := c.SendRecv(ctx, tensor.Of(x), 7, tensor.Of(y), 0); err == nil {
					return fmt.Errorf("sent to rank 7")
				}
				return nil
			},
			func() (err error) { registered, err = c.Alloc(ctx, tensor.Uint8, 600); return err },
			func() error { return exchange(y, registered.Bytes(), 1) },
			func() error { return c.Free(registered) },
		}
		for _, f := range between {
			if err := f(); err != nil {
				return err
			}
			for _, do := range []struct {
				dst []byte
				by  int
			}{{y, 1}, {y, 1}, {z, 1}, {y, 1}, {y, 2}, {y, 2}, {y[:7], 2}, {y, 1}, {y, 1}} {
				if err := exchange(do.dst, x[:len(do.dst)], do.by); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.True(t, comms[0].grouping.kept)
}

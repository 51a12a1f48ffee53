package collective

import (
	"testing"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// A custom operation that calls the communicator that runs it gets an error, with or without a bias of its goroutine, and the call
// goes on.
func TestOperationCallsItsOwnCommunicator(t *testing.T) {
	if cpu.Goroutine() == 0 {
		t.Skip("goroutines cannot be told apart here")
	}
	comms := local(t, 2, Config{})
	each(t, comms, func(c *Comm) error {
		ways := []func() error{
			func() error {
				x := []int64{1}
				return c.AllReduce(t.Context(), tensor.Of(x), tensor.Of(x), tensor.Sum)
			},
			func() error { return c.Barrier(t.Context()) },
			func() error { return c.Group(t.Context(), Call{Kind: Barrier}) },
			func() error {
				h := c.Start(t.Context(), Call{Kind: Barrier})
				<-h.Done()
				return h.Err()
			},
			func() error { _, err := c.Agree(t.Context(), 1); return err },
			func() error { _, err := c.Shrink(t.Context()); return err },
			func() error { _, err := c.Alloc(t.Context(), tensor.Int64, 1); return err },
			func() error { _, err := c.Prepare(Call{Kind: Barrier}); return err },
			func() error { return c.Close() },
		}
		var call func() error
		called := 0
		op := tensor.Custom("calls", true, func(dst, a, b []int64) {
			if called++; call != nil {
				require.ErrorIs(t, call(), ErrInvalid)
				require.ErrorContains(t, call(), "own communicator")
			}
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		})
		reduce := func() error {
			x := []int64{int64(1 + c.rank)}
			if err := c.AllReduce(t.Context(), tensor.Of(x), tensor.Of(x), op); err != nil {
				return err
			}
			require.Equal(t, int64(3), x[0])
			return nil
		}
		for _, call = range append(ways, ways...) {
			if err := reduce(); err != nil {
				return err
			}
			way := call
			call = nil
			for range 2 * biasAfter { // a bias, and with it the same once more
				if err := reduce(); err != nil {
					return err
				}
			}
			call = way
			if err := reduce(); err != nil {
				return err
			}
			x := []int64{int64(1 + c.rank)}
			h := c.Start(t.Context(), Call{Kind: AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: op}) // and by whoever serves the queue
			<-h.Done()
			require.Equal(t, int64(3), x[0])
			if h.Err() != nil {
				return h.Err()
			}
		}
		require.NotZero(t, called)
		return nil
	})
}

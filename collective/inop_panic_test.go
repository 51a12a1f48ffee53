package collective

import (
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An operation that panics, on one rank, breaks the communicator, also if the rank recovers: peers learn who it was,
// and Close returns. With and without a bias of the goroutine.
func TestOperationPanics(t *testing.T) {
	for name, way := range map[string]func(c *Comm, call Call) error{
		"call":  func(c *Comm, call Call) error { return c.AllReduce(t.Context(), call.Dst, call.Src, call.Op) },
		"group": func(c *Comm, call Call) error { return c.Group(t.Context(), call) },
		"prepared": func(c *Comm, call Call) error {
			p, err := c.Prepare(call)
			if err != nil {
				return err
			}
			return p.Run(t.Context())
		},
	} {
		for _, before := range []int{0, 3 * biasAfter} {
			t.Run(name, func(t *testing.T) {
				comms := local(t, 3, Config{Timeout: 30 * time.Second})
				each(t, comms, func(c *Comm) error {
					calls := 0
					op := tensor.Custom("boom", true, func(dst, a, b []float32) {
						if c.rank == 1 && calls == before {
							panic("boom")
						}
						for i := range dst {
							dst[i] = a[i] + b[i]
						}
					})
					x := []float32{1, 2, 3}
					call := Call{Kind: AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: op}
					for ; calls < before; calls++ {
						if err := way(c, call); err != nil {
							return err
						}
					}
					if c.rank == 1 {
						require.PanicsWithValue(t, "boom", func() { _ = way(c, call) })
					} else {
						_ = way(c, call) // which may have been over before
					}
					err := c.Barrier(t.Context())
					require.ErrorContains(t, err, "rank 1")
					require.ErrorContains(t, err, "a reduce operation panicked")
					return nil
				})
				for _, c := range comms {
					closed := make(chan struct{})
					go func() {
						defer close(closed)
						assert.NoError(t, c.Close())
					}()
					select {
					case <-closed:
					case <-time.After(20 * time.Second):
						t.Fatalf("rank %d does not close", c.rank)
					}
				}
			})
		}
	}
}

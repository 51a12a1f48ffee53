package collective

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// An operation that is more than a call, and whose context ends before its turn has come, ends at once and leaves no trace: the ranks make
// it together later. One whose turn has come ends as it says; after Close it says that.
func TestOperationsThatHaveNotBegun(t *testing.T) {
	operations := map[string]func(context.Context, *Comm) error{
		"alloc":   func(ctx context.Context, c *Comm) error { return second(c.Alloc(ctx, tensor.Uint8, 1<<10)) },
		"dup":     func(ctx context.Context, c *Comm) error { return second(c.Dup(ctx)) },
		"split":   func(ctx context.Context, c *Comm) error { return second(c.Split(ctx, NoColor, 0)) },
		"waiting": func(ctx context.Context, c *Comm) error { return second(c.Waiting(ctx)) },
		"grow":    func(ctx context.Context, c *Comm) error { return second(c.Grow(ctx, 1)) },
		"agree":   func(ctx context.Context, c *Comm) error { return second(c.Agree(ctx, 1)) },
		"shrink":  func(ctx context.Context, c *Comm) error { return second(c.Shrink(ctx)) },
	}
	for name, operation := range operations {
		synctest.Test(t, func(t *testing.T) {
			comms, _ := hookedJob(t, Config{Timeout: time.Hour})
			defer closeAll(t, comms...)
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			refused := func(ctx context.Context, kind error) {
				began := time.Now()
				err := operation(ctx, comms[0])
				require.ErrorIs(t, err, ErrNotBegun, name)
				require.ErrorIs(t, err, kind, name)
				require.LessOrEqual(t, time.Since(began), time.Second, name)
			}
			refused(ended, context.Canceled)
			free := make(chan struct{})
			before := comms[0].queue.put(func() error { <-free; return nil }) // as a custom operation that takes long
			soon, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			refused(soon, context.DeadlineExceeded)
			refused(ended, context.Canceled)
			close(free)
			<-before.Done()
			if name == "shrink" { // which begins with a Revoke
				return
			}
			var errs [2]error
			together(comms, func(c *Comm) {
				data := tensor.Of([]int32{1})
				if errs[c.rank] = c.AllReduce(context.Background(), data, data, tensor.Sum); errs[c.rank] == nil && name == "agree" {
					errs[c.rank] = operation(context.Background(), c)
				}
			})
			require.Equal(t, [2]error{}, errs, name)
			require.NoError(t, comms[0].Close())
			require.ErrorIs(t, operation(ended, comms[0]), ErrClosed, name)
		})
	}
}

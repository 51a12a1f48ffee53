package collective_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// workGrows takes in a newcomer, reduces with it, and shrinks when it has gone.
func workGrows(ctx context.Context, c *collective.Comm) error {
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		var err error
		if n, err = c.Waiting(ctx); err != nil {
			return err
		}
	}
	grown, err := c.Grow(ctx, 1)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Close(), addUp(ctx, grown)); err != nil {
		return err
	}
	for err == nil { // until the newcomer has left
		err = addUp(ctx, grown)
	}
	left, err := grown.Shrink(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(grown.Close(), addUp(ctx, left)); err != nil {
		return err
	}
	fmt.Println("shrunk to", left.Size())
	return left.Close()
}

// workJoins joins a job, and leaves it after a reduction.
func workJoins(ctx context.Context) error {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	c, err := collective.Join(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(addUp(ctx, c), c.Close())
}

func addUp(ctx context.Context, c *collective.Comm) error {
	x := []int64{1}
	if err := c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil {
		return err
	}
	if int(x[0]) != c.Size() {
		return fmt.Errorf("rank %d: sum %d", c.Rank(), x[0])
	}
	return nil
}

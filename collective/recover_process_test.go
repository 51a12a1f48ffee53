//go:build unix

package collective_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// workShrink reduces until something breaks, shrinks, and checks a reduction among the survivors; and
// so on, until only two ranks are left.
func workShrink(ctx context.Context, c *collective.Comm) error {
	first := c
	for {
		err := workForever(ctx, c)
		fmt.Println("broken:", err)
		ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		began := time.Now()
		child, err := c.Shrink(ctx)
		if err != nil {
			if first == c {
				fmt.Println("no shrink:", err)
			}
			return errors.Join(err, c.Close())
		}
		took := time.Since(began).Round(time.Millisecond)
		if err := c.Close(); err != nil {
			return err
		}
		x := []float32{1, float32(child.Rank())}
		if err := child.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil {
			return err
		}
		n := float32(child.Size())
		if x[0] != n || x[1] != n*(n-1)/2 {
			return fmt.Errorf("rank %d: %v among %v", child.Rank(), x, n)
		}
		var former []string
		for r := range child.Size() {
			former = append(former, fmt.Sprint(child.Former(r)))
		}
		fmt.Printf("shrunk to %s, generation %d\n", strings.Join(former, ","), child.Generation())
		fmt.Fprintf(os.Stderr, "in %v\n", took)
		c = child
		if c.Size() == 2 {
			return c.Close()
		}
	}
}

// Each rank in turn is killed in the middle of its calls: the others shrink, and go on with a correct
// AllReduce.
func TestShrinkAfterKill(t *testing.T) {
	before := shmFiles(t)
	for _, provider := range []string{"shm", "tcp"} {
		for victim := range 3 {
			var out output
			j := job("shrink", 3, &out)
			j.Survive = true
			j.Env = append(j.Env, "GCCL_PROVIDER="+provider)
			j.Started = func(ps []*os.Process) {
				go func() {
					awaitReady(&out, 3)
					time.Sleep(5 * time.Millisecond)
					_ = ps[victim].Signal(syscall.SIGKILL)
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			require.Error(t, j.Run(ctx), "the victim's end")
			require.NoError(t, ctx.Err(), out.String())
			cancel()
			want := strings.Join(without([]string{"0", "1", "2"}, victim), ",")
			require.Equal(t, 2, strings.Count(out.String(), "shrunk to "+want+", generation 1\n"), "%s, rank %d:\n%s", provider, victim, &out)
		}
	}
	require.Equal(t, before, shmFiles(t))
}

func without(ranks []string, r int) []string {
	return append(append([]string(nil), ranks[:r]...), ranks[r+1:]...)
}

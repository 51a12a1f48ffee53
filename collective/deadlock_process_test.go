package collective_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

// workDeadlocks runs the deadlock patterns over two communicators. Nobody closes them before all have come to the
// end of the last pattern: who waits there would learn of that, instead.
func workDeadlocks(ctx context.Context, c *collective.Comm) error {
	a, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	b, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	return errors.Join(collective.RunDeadlockPatterns(ctx, a, b), c.Barrier(ctx), a.Close(), b.Close())
}

func TestDeadlockPatternsInProcesses(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		var out output
		j := job("deadlocks", 3, &out)
		j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_BUFFSIZE=16K", "GCCL_TIMEOUT=20s")
		require.NoError(t, j.Run(t.Context()), "%s:\n%s", provider, &out)
	}
}

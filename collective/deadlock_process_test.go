package collective_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

// workDeadlocks runs the deadlock patterns over two communicators.
func workDeadlocks(ctx context.Context, c *collective.Comm) error {
	other, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	return errors.Join(collective.RunDeadlockPatterns(ctx, c, other), other.Close())
}

func TestDeadlockPatternsInProcesses(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		var out output
		j := job("deadlocks", 3, &out)
		j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_BUFFSIZE=16K", "GCCL_TIMEOUT=20s")
		require.NoError(t, j.Run(t.Context()), "%s:\n%s", provider, &out)
	}
}

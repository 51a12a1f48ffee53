package collective_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

// workSlow has rank 1 compute for longer than the others may see no sign of life.
func workSlow(ctx context.Context, c *collective.Comm) error {
	if c.Rank() == 1 {
		sum := uint64(0)
		for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
			for i := range uint64(1 << 20) {
				sum = sum*31 + i
			}
		}
		if sum == 1 {
			return errors.New("unlikely")
		}
	}
	return c.Barrier(ctx)
}

// Ranks that compute, or wait for a rank that computes, are not given up.
func TestSlowRankIsNotStopped(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			var out output
			j := job("slow", 3, &out)
			j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_HEARTBEAT=1s")
			require.NoError(t, j.Run(t.Context()), out.String())
		})
	}
}

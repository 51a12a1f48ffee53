//go:build unix

package collective_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// A stopped rank is given up by those that wait for it, by name, over every provider; all say the same;
// when it goes on, it learns of it.
func TestStoppedRank(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			stopOne(t, provider)
		})
	}
}

func stopOne(t *testing.T, provider string) {
	var out output
	j := job("forever", 3, &out)
	j.Survive = true
	j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_HEARTBEAT=1s")
	j.Started = func(ps []*os.Process) {
		go func() {
			awaitReady(&out, 3)
			_ = ps[1].Signal(syscall.SIGSTOP)
			out.until("[0] allreduce", 1)
			out.until("[2] allreduce", 1)
			_ = ps[1].Signal(syscall.SIGCONT)
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	require.Error(t, j.Run(ctx))
	require.NoError(t, ctx.Err(), out.String())
	for _, r := range []string{"[0] ", "[2] "} {
		require.Regexp(t, `(?m)^\`+r+`allreduce.* #\d+ rank \d .*peer lost: rank 1 \(pid \d+ on .*\) has been stopped or cut off for 1`, out.String())
	}
	// Over mapped memory the stopped rank finds the notice; over connections it may find first that they are gone.
	require.Regexp(t, `(?m)^\[1\] allreduce.* #\d+ rank 1 .*peer lost: `, out.String())
}

// A rank that is stopped before there is a link to it is given up as well, by its port that does not answer.
func TestStoppedRankWithoutLinks(t *testing.T) {
	var out output
	j := job("unlinked", 3, &out)
	j.Survive = true
	j.Env = append(j.Env, "GCCL_LAZY=1", "GCCL_HEARTBEAT=3s", "GCCL_TIMEOUT=5m")
	j.Started = func(ps []*os.Process) {
		go func() {
			out.until("[0] allreduce", 1)
			out.until("[2] allreduce", 1)
			_ = ps[1].Signal(syscall.SIGCONT)
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	require.Error(t, j.Run(ctx))
	require.NoError(t, ctx.Err(), out.String())
	for _, r := range []string{"[0] ", "[2] "} {
		require.Regexp(t, `(?m)^\`+r+`allreduce.* rank \d.*peer lost: rank 1 \(pid \d+ on .*\).*its process has not answered for 3s`, out.String())
	}
	require.Regexp(t, `(?m)^\[1\] allreduce.* rank 1.*peer lost: `, out.String())
}

// workUnlinked stops rank 1 before its first call.
func workUnlinked(ctx context.Context, c *collective.Comm) error {
	if c.Rank() == 1 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(time.Second) // the signal may come a moment later
	}
	x := []float32{1}
	return c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum)
}

//go:build unix

package collective_test

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				if text := out.String(); strings.Contains(text, "[0] allreduce") && strings.Contains(text, "[2] allreduce") {
					break
				}
			}
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

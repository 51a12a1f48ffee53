//go:build unix

package collective_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/internal/launch"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// leftEnv is how many ranks are left when workShrink may end, and until which file exists it waits then.
const leftEnv, untilEnv = "GCCL_TEST_LEFT", "GCCL_TEST_UNTIL"

// workShrink reduces until something breaks, shrinks, and checks a reduction among the survivors; and
// so on, until only so many ranks are left.
func workShrink(ctx context.Context, c *collective.Comm) error {
	left, err := strconv.Atoi(os.Getenv(leftEnv))
	if err != nil {
		return err
	}
	for {
		fmt.Println("broken:", workForever(ctx, c))
		ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		child, err := c.Shrink(ctx)
		if err != nil {
			fmt.Println("no shrink:", err)
			return c.Close()
		}
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
		c = child
		if c.Size() == left {
			for until := os.Getenv(untilEnv); until != "" && !exists(until) && ctx.Err() == nil; {
				time.Sleep(time.Millisecond)
			}
			return c.Close()
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// shrinking runs workShrink on n ranks until left are left, while meanwhile has its way with them.
func shrinking(t *testing.T, n, left int, env []string, meanwhile func(ps []*os.Process, out *output)) string {
	t.Helper()
	var out output
	j := job("shrink", n, &out)
	j.Survive = true
	j.Env = append(append(j.Env, fmt.Sprintf("%s=%d", leftEnv, left)), env...)
	j.Started = func(ps []*os.Process) {
		go func() {
			awaitReady(&out, n)
			meanwhile(ps, &out)
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	err := j.Run(ctx)
	require.NoError(t, ctx.Err(), out.String())
	var exit *launch.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 128+int(syscall.SIGKILL), exit.Code, out.String())
	}
	return out.String()
}

// until waits for a text in the output, as long as a job may take.
func (o *output) until(text string, times int) {
	for end := time.Now().Add(60 * time.Second); strings.Count(o.String(), text) < times && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Each rank in turn is killed in the middle of its calls: the others shrink, and go on with a correct
// AllReduce.
func TestShrinkAfterKill(t *testing.T) {
	before := shmFiles(t)
	for _, provider := range []string{"shm", "tcp"} {
		for victim := range 3 {
			out := shrinking(t, 3, 2, []string{"GCCL_PROVIDER=" + provider}, func(ps []*os.Process, out *output) {
				time.Sleep(5 * time.Millisecond)
				_ = ps[victim].Kill()
			})
			want := []string{"1,2", "0,2", "0,1"}[victim]
			require.Equal(t, 2, strings.Count(out, "shrunk to "+want+", generation 1\n"), "%s, rank %d:\n%s", provider, victim, out)
		}
	}
	require.Equal(t, before, shmFiles(t))
}

// Two more ranks, the coordinator's successor among them, are killed while the others shrink, at various
// moments: all that are left go on together.
func TestShrinkWhileMoreDie(t *testing.T) {
	before := shmFiles(t)
	rounds := 4
	if *thorough {
		rounds = 100
	}
	for round := range rounds {
		provider := []string{"shm", "tcp"}[round%2]
		out := shrinking(t, 6, 3, []string{"GCCL_PROVIDER=" + provider}, func(ps []*os.Process, out *output) {
			_ = ps[0].Kill()
			out.until("broken", 1)
			time.Sleep(time.Duration(round*10) * time.Millisecond)
			_ = ps[1].Kill()
			time.Sleep(time.Duration(round%3*10) * time.Millisecond)
			_ = ps[4].Kill()
		})
		// However many generations it took, the last one is of the ranks 2, 3 and 5.
		for _, r := range []string{"[2]", "[3]", "[5]"} {
			i := strings.LastIndex(out, r+" shrunk to ")
			require.Positive(t, i, "round %d: rank %s:\n%s", round, r, out)
			require.Regexp(t, `^\d,\d,\d, `, out[i+len(r+" shrunk to "):], out)
		}
		require.NotContains(t, out, "no shrink", "round %d", round)
	}
	require.Equal(t, before, shmFiles(t))
}

// A stopped rank is left out; when it goes on, it learns so, whether the others are still there or not.
func TestShrinkWithoutStoppedRank(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		for _, wait := range []bool{true, false} {
			until := filepath.Join(t.TempDir(), "end")
			env := []string{"GCCL_PROVIDER=" + provider, "GCCL_HEARTBEAT=1s"}
			if wait {
				env = append(env, untilEnv+"="+until)
			}
			out := shrinking(t, 3, 2, env, func(ps []*os.Process, out *output) {
				_ = ps[1].Signal(syscall.SIGSTOP)
				out.until("shrunk to 0,2", 2)
				if !wait {
					for ps[0].Signal(syscall.Signal(0)) == nil || ps[2].Signal(syscall.Signal(0)) == nil {
						time.Sleep(time.Millisecond)
					}
				}
				_ = ps[1].Signal(syscall.SIGCONT)
				out.until("[1] no shrink", 1)
				_ = os.WriteFile(until, nil, 0o600)
			})
			require.Equal(t, 2, strings.Count(out, "shrunk to 0,2, generation 1\n"), out)
			if wait {
				require.Regexp(t, `(?m)^\[1\] no shrink: .*excluded by the other ranks`, out)
			} else {
				require.Regexp(t, `(?m)^\[1\] no shrink: .*(excluded by the other ranks|no majority)`, out)
			}
		}
	}
}

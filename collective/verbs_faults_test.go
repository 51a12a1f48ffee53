//go:build unix

package collective_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

// fewSizes are the sizes of workFew, and its cases among the disagreements: operation, type, collective, order, roots, count.
var fewSizes = []struct {
	bytes int
	cases []int
}{
	{4, []int{0, 1, 3}}, // no count is two smaller
	{24, []int{0, 1, 2, 3, 4, 5, 6}},
	{4 << 10, []int{0, 1, 6}},
	{192 << 10, []int{0, 1, 2, 3, 4, 5, 6}},
	{1 << 20, []int{0, 1, 6}},
	{16 << 20, []int{0, 1, 6}},
	{64 << 20, []int{0, 1, 6}},
}

// workFew goes through some of the disagreements.
func workFew(ctx context.Context, c *collective.Comm) error {
	a := &arena{b: make([]byte, 2*(fewSizes[len(fewSizes)-1].bytes+2*guardBytes+64))}
	whole := a.b
	for _, few := range fewSizes {
		a.b = whole[:2*(few.bytes+2*guardBytes+64)]
		ds := disagreements(a, few.bytes/4, c.Size())
		for _, i := range few.cases {
			start := time.Now()
			if err := disagree(ctx, c, a, ds[i]); err != nil {
				return fmt.Errorf("rank %d: %s of %d bytes: %w", c.Rank(), ds[i].name, few.bytes, err)
			}
			fmt.Printf("%s of %d bytes: mismatch after %v\n", ds[i].name, few.bytes, time.Since(start).Round(time.Millisecond))
		}
	}
	return nil
}

// Over verbs, too, all ranks see who makes another call, whatever its size.
func TestVerbsMismatch(t *testing.T) {
	needVerbs(t)
	var out output
	j := job("few", 3, &out)
	j.Env = append(j.Env, append(overVerbs, "GCCL_BUFFSIZE=128K")...)
	require.NoError(t, j.Run(t.Context()), "%s", &out)
	total := 0
	for _, few := range fewSizes {
		total += len(few.cases)
	}
	require.Equal(t, 3*total, strings.Count(out.String(), ": mismatch after "), "%s", &out)
	t.Logf("%s", &out)
}

// A stopped rank, whose card answers keep-alives, is given up after the heartbeat, by name. The bound is for hosts whose
// processors are lent out.
func TestVerbsStopped(t *testing.T) {
	needVerbs(t)
	var out output
	j := job("forever", 3, &out)
	j.Env, j.Survive = append(j.Env, append(overVerbs, "GCCL_HEARTBEAT=3s")...), true
	stopped := make(chan time.Time, 1)
	seen := make(chan time.Time, 1)
	j.Started = func(ps []*os.Process) {
		go func() {
			out.await("ready", 3)
			stopped <- time.Now()
			_ = ps[1].Signal(syscall.SIGSTOP)
			for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
				if text := out.String(); strings.Contains(text, "[0] allreduce") && strings.Contains(text, "[2] allreduce") {
					break
				}
			}
			seen <- time.Now()
			_ = ps[1].Signal(syscall.SIGCONT)
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.Error(t, j.Run(ctx))
	require.NoError(t, ctx.Err(), "%s", &out)
	took := (<-seen).Sub(<-stopped)
	require.Less(t, took, 40*time.Second, "%s", &out)
	for _, r := range []string{"0", "2"} {
		require.Regexp(t, `(?m)^\[`+r+`\] allreduce.* rank \d .*peer lost: rank 1 \(pid \d+ on .*\) has been stopped or cut off for `, out.String())
	}
	t.Logf("FAULT | rank of 3 stopped in an allreduce, heartbeat 3s | %v | %s", took.Round(time.Millisecond), &out)
}

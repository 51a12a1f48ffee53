package collective_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// stopEnv is the file whose existence ends workUntil.
const stopEnv = "GCCL_TEST_STOP"

// workUntil reduces long vectors, and checks every element, until it is told to stop.
func workUntil(ctx context.Context, c *collective.Comm) error {
	n, me := c.Size(), c.Rank()
	x, y := make([]float32, 300_000), make([]float32, 300_000)
	for call := 0; ; call++ {
		for i := range x {
			x[i] = float32(me + (i+call)%7)
		}
		if err := c.AllReduce(ctx, tensor.Of(y), tensor.Of(x), tensor.Sum); err != nil {
			return err
		}
		for i := range y {
			if want := float32(n*((i+call)%7) + n*(n-1)/2); y[i] != want {
				return fmt.Errorf("rank %d: call %d: [%d] = %v, want %v", me, call, i, y[i], want)
			}
		}
		fmt.Printf("call %d right\n", call)
		end := []int32{0}
		if _, err := os.Stat(os.Getenv(stopEnv)); err == nil {
			end[0] = 1
		}
		if err := c.AllReduce(ctx, tensor.Of(end), tensor.Of(end), tensor.Max); err != nil {
			return err
		}
		if end[0] == 1 {
			return nil
		}
	}
}

// Three ranks reduce over two queue pairs a connection, on two wires to the second of them. One wire is cut in
// mid-transfer: the job goes on, and every result is right. Then the other: all ranks say who cannot be reached.
func TestVerbsWireCut(t *testing.T) {
	needVerbs(t)
	if _, err := exec.LookPath("secondwire"); err != nil || os.Getenv(hostEnv) != "" {
		t.Skip("needs the one VM with two devices of rdma/verbs/lab/rxelab")
	}
	sh := func(script string) {
		out, err := exec.Command("sh", "-ec", script).CombinedOutput()
		require.NoError(t, err, "%s: %s", script, out)
	}
	cut := func(wire string) {
		sh(fmt.Sprintf("for i in 0 1; do tc qdisc replace dev %s$i root netem loss 100%%; done", wire))
	}
	sh("secondwire up")
	t.Cleanup(func() { sh("secondwire down") })
	for _, wire := range []string{"w", "v"} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("wire=%s,both=%v", wire, both), func(t *testing.T) {
				if testing.Short() && both != (wire == "v") {
					t.Skip("the other two are the short form")
				}
				defer func() { sh("for i in v0 v1 w0 w1; do tc qdisc del dev $i root 2>/dev/null || true; done") }()
				until := filepath.Join(t.TempDir(), "until")
				var out output
				_, wait := startRanks(t, "until", []int{0, 1, 2}, 3, &out, func(rank int) []string {
					hca := []string{"=rxe0:1,rxe2:1", "=rxe1:1,rxe3:1"}[rank%2]
					return append(overVerbs, "GCCL_ROOT=127.0.0.1:7713", "GCCL_IB_QPS=2", "GCCL_IB_HCA="+hca, "GCCL_DEBUG=warn", stopEnv+"="+until)
				})
				out.await(" right", 12)
				start := time.Now()
				cut(wire)
				if both {
					cut(map[string]string{"w": "v", "v": "w"}[wire])
					require.Error(t, wait())
					text := out.String()
					for r, others := range []string{"1", "[02]", "1"} {
						require.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] allreduce.*peer lost: rank %s \(pid`, r, others), text)
					}
					t.Logf("FAULT | all wires to a rank of 3 cut in an allreduce, 2 queue pairs | %v | %s", time.Since(start).Round(time.Millisecond), &out)
					return
				}
				before := strings.Count(out.String(), " right")
				out.await(" right", before+30)
				took := time.Since(start)
				require.NoError(t, os.WriteFile(until, nil, 0o600))
				require.NoError(t, wait(), "%s", &out)
				require.Contains(t, out.String(), "lost queue pair")
				t.Logf("FAULT | one of two wires cut in allreduces of 1.2 MB: 10 more calls of 3 ranks right | %v", took.Round(time.Millisecond))
			})
		}
	}
}

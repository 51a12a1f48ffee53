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
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// endBound is within what Abort ends calls and Close returns, whatever the peers do: Close waits up to a
// second for its own last messages. The rest is for a busy machine.
const endBound = 5 * time.Second

// workBounds has rank 1 stop itself, and rank 0 fill all queues to it and then leave, in the way that
// the environment says.
func workBounds(ctx context.Context, c *collective.Comm) error {
	x := []int64{int64(os.Getpid())}
	if c.Rank() == 1 {
		if err := c.Send(ctx, tensor.Of(x), 0); err != nil {
			return err
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(time.Minute) // the signal may come a moment later, and then its end
		return nil
	}
	if err := c.Recv(ctx, tensor.Of(x), 1); err != nil {
		return err
	}
	for stopped := false; !stopped; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", x[0]))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		stopped = strings.HasPrefix(rest, "T")
	}
	var calls []*collective.Handle
	big := make([]float32, 4<<20) // 16 MiB: no link holds it, so that no call ends well
	for range 40 {
		calls = append(calls, c.Start(ctx, collective.Call{Kind: collective.Send, Src: tensor.Of(big), Peer: 1}))
		calls = append(calls, c.Start(ctx, collective.Call{Kind: collective.AllReduce, Dst: tensor.Of(big), Src: tensor.Of(big), Op: tensor.Sum}))
	}
	for settled := time.Now().Add(200 * time.Millisecond); time.Now().Before(settled); time.Sleep(time.Millisecond) {
		if calls[len(calls)-1].Err() != nil {
			return fmt.Errorf("too early: %w", calls[len(calls)-1].Err())
		}
	}
	began := time.Now()
	if os.Getenv("GCCL_TEST_ABORT") != "" {
		c.Abort("enough")
		for i, h := range calls {
			waiting, cancel := context.WithTimeout(ctx, endBound)
			err := h.Wait(waiting)
			cancel()
			if waiting.Err() != nil && h.Err() == nil {
				return fmt.Errorf("call %d: not ended after Abort: %w", i, err)
			}
		}
		fmt.Println("aborted in", time.Since(began))
	}
	began = time.Now()
	err := c.Close()
	took := time.Since(began)
	if took > endBound {
		return fmt.Errorf("Close took %v", took)
	}
	if err := calls[len(calls)-1].Err(); err == nil {
		return fmt.Errorf("the last call ended well")
	}
	fmt.Println("closed in", took)
	return err
}

// Abort and Close are local and bounded: with a stopped peer and all queues full.
func TestEndsAreBounded(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		for _, abort := range []string{"", "1"} {
			var out output
			j := job("bounds", 2, &out)
			j.Survive = true
			j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_TEST_ABORT="+abort)
			j.Started = func(ps []*os.Process) {
				go func() {
					for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
						if text := out.String(); strings.Contains(text, "closed in") {
							break
						}
					}
					_ = ps[1].Kill()
				}()
			}
			require.Error(t, j.Run(t.Context()), "rank 1 is killed")
			require.Contains(t, out.String(), "[0] closed in", "%s abort=%q", provider, abort)
			t.Logf("%s abort=%q:\n%s", provider, abort, &out)
		}
	}
}

//go:build unix

package collective_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workStorm says that the runtime has its signal handlers, and then is the table's work.
func workStorm(ctx context.Context) error {
	fmt.Println("begun")
	return work(workTable)
}

// Ten thousand SIGURG and SIGUSR1 a second to every rank, from before New to the end, change nothing.
func TestSignalStorm(t *testing.T) {
	for _, env := range []string{"GCCL_PROVIDER=shm GCCL_DUMP_SIGNAL=1", "GCCL_PROVIDER=tcp"} {
		var out output
		j := job("storm", 3, &out)
		j.Env = append(j.Env, append(strings.Fields(env), "GCCL_DUMP_DIR="+t.TempDir())...)
		var wg sync.WaitGroup
		var sent [3]int
		j.Started = func(ps []*os.Process) {
			for r, p := range ps {
				wg.Go(func() {
					for !strings.Contains(out.String(), fmt.Sprintf("[%d] begun", r)) {
						time.Sleep(time.Millisecond)
					}
					for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
						for i := range 10 {
							if p.Signal([]os.Signal{syscall.SIGURG, syscall.SIGUSR1}[i%2]) != nil {
								return // it has ended
							}
							sent[r]++
						}
					}
				})
			}
		}
		require.NoError(t, j.Run(t.Context()), "%s:\n%s", env, &out)
		wg.Wait()
		for r, n := range sent {
			require.Greater(t, n, 100, "rank %d saw no storm", r)
		}
		t.Logf("%s: signals to the ranks: %v", env, sent)
	}
}

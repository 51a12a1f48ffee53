//go:build unix

package collective_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/recorder"
	"github.com/stretchr/testify/require"
)

// readDumps reads every flight record of a directory.
func readDumps(t *testing.T, dir string) []*recorder.Dump {
	files, err := filepath.Glob(filepath.Join(dir, "gccl-*.json"))
	require.NoError(t, err)
	var ds []*recorder.Dump
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		d, err := recorder.Decode(b)
		require.NoError(t, err, f)
		ds = append(ds, d)
	}
	return ds
}

// awaitReady waits until n ranks have said that they are ready.
func awaitReady(out *output, n int) {
	for strings.Count(out.String(), "ready") < n {
		time.Sleep(time.Millisecond)
	}
}

// A stopped rank leaves no record at SIGUSR1, the others do and name it; killed, the others' failure
// is recorded.
func TestRecordsOfAJob(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		dir := t.TempDir()
		var out output
		j := job("forever", 3, &out)
		j.Survive = true
		j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_DUMP_SIGNAL=1", "GCCL_DUMP_DIR="+dir)
		signalled := make(chan recorder.Report, 1)
		j.Started = func(ps []*os.Process) {
			go func() {
				defer ps[1].Kill()
				awaitReady(&out, 3)
				_ = ps[1].Signal(syscall.SIGSTOP)
				for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
					_ = ps[0].Signal(syscall.SIGUSR1)
					_ = ps[2].Signal(syscall.SIGUSR1)
					ds := readDumps(t, dir)
					if len(ds) == 2 && len(ds[0].Lanes) > 0 && len(ds[1].Lanes) > 0 {
						if r := recorder.Explain(ds)[0]; len(r.Findings) == 1 {
							signalled <- r
							return
						}
					}
				}
				close(signalled)
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		require.Error(t, j.Run(ctx))
		cancel()
		r := <-signalled
		require.Len(t, r.Findings, 1, out.String())
		require.Contains(t, r.Findings[0], "rank 1 is absent: it left no dump; ranks 0, 2 wait for it in allreduce #")
		ds := readDumps(t, dir)
		require.Len(t, ds, 2)
		for _, d := range ds {
			require.Equal(t, "failure", d.Why)
			require.Equal(t, 1, d.Broken.Peer)
		}
	}
}

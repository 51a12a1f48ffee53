package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/examples/allreduce/internal/npy"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

var realLaunchers = flag.Bool("launchers", false, "run the example under real launchers, which must be installed (make test-launchers)")

// needed are the programs of the launchers.
var needed = []string{"srun", "sbatch", "slurmctld", "slurmd", "mpirun.openmpi", "mpirun.mpich"}

// fakeRsh is a remote shell for launchers: it drops options and the host, and stays here. The host's name
// is what ranks tell hosts apart by, so that messages between two go over tcp. A host has temporary files
// of its own: two daemons of Open MPI make the same directory at once, and one would fail.
const fakeRsh = `#!/bin/sh
while :; do case "$1" in -*) shift;; *) break;; esac; done
GCCL_HOSTID=$1 TMPDIR=${0%/*}/$1; export GCCL_HOSTID TMPDIR; shift
mkdir -p "$TMPDIR"
exec sh -c "$*"
`

// job is the example on four ranks' files, in a directory of its own.
type job struct {
	dir  string
	args []string
}

const launcherRanks = 4

func newJob(t *testing.T) job {
	t.Helper()
	j := job{t.TempDir(), []string{"-in", "grad-%d.npy", "-op", "avg", "-out", "avg.npy", "-timeout", "30s"}}
	for r := range launcherRanks {
		b, err := npy.Header(tensor.Float32, []int{5000})
		require.NoError(t, err)
		for i := range 5000 { // whole numbers, whose sums are exact in any order
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32((i*7+r*r*13)%1000-500)))
		}
		put(t, j.dir, fmt.Sprintf("grad-%d.npy", r), b)
	}
	return j
}

// command is a launcher's command line that runs the example's ranks.
func (j job) command(words ...string) []string {
	return append(append(words, program, "-n", "0"), j.args...)
}

// result is the average that a job left.
func (j job) result(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(j.dir, "avg.npy"))
	require.NoError(t, err)
	return b
}

// The same program under every launcher gives the same result.
func TestLaunchers(t *testing.T) {
	if !*realLaunchers {
		t.Skip("needs -launchers (make test-launchers): starts Slurm and mpirun")
	}
	for _, name := range needed {
		if _, err := exec.LookPath(name); err != nil {
			if _, err = os.Stat("/usr/sbin/" + name); err != nil {
				t.Fatalf("%s is not installed: make test-launchers installs it", name)
			}
		}
	}
	ref := newJob(t)
	out := runProgram(t, ref.dir, append([]string{"-n", fmt.Sprint(launcherRanks), "-provider", "loopback"}, ref.args...)...)
	require.Zero(t, out.code, out.stderr)
	want := ref.result(t)

	shared := t.TempDir()
	rsh := filepath.Join(shared, "rsh")
	require.NoError(t, os.WriteFile(rsh, []byte(fakeRsh), 0o755))
	openHosts, mpichHosts := filepath.Join(shared, "open"), filepath.Join(shared, "mpich")
	require.NoError(t, os.WriteFile(openHosts, []byte("n1 slots=2\nn2 slots=2\n"), 0o644))
	require.NoError(t, os.WriteFile(mpichHosts, []byte("n1:2\nn2:2\n"), 0o644))

	s := newSlurm(t, 2)
	// Nodes have no names in this host's tables, and their messages are to cross tcp.
	asNode := []string{"sh", "-c", `GCCL_HOSTID=n$SLURM_NODEID exec "$0" "$@"`}
	two := []string{"srun", "-N2", "-n4", "--kill-on-bad-exit=1"}
	mpirun := []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"}
	loopback := []string{"GCCL_ALLOW_LOOPBACK=1"}
	at := func() string { return fmt.Sprintf("GCCL_ROOT=127.0.0.1:%d", freePorts(t, 1)[0]) }
	for _, c := range []struct {
		name  string
		words []string
		env   []string
	}{
		{"srun, one node", []string{"srun", "-N1", "-n4", "--kill-on-bad-exit=1"}, nil},
		{"srun, two nodes, a root that is given", slices.Concat(two, asNode), append(loopback, at())},
		{"srun, two nodes, a shared directory", slices.Concat(two, asNode), []string{"GCCL_RENDEZVOUS=file://" + shared}},
		{"srun, two nodes, PMI-2", slices.Concat(two, []string{"--mpi=pmi2"}, asNode), nil},
		{"srun, one node, PMIx", []string{"srun", "-N1", "-n4", "--mpi=pmix"}, nil},
		{"mpirun of Open MPI", mpirun, nil},
		{"mpirun of Open MPI, two nodes", append(slices.Clip(mpirun), "--mca", "plm_rsh_agent", rsh, "--hostfile", openHosts), loopback},
		{"mpirun of MPICH", []string{"mpirun.mpich", "-n", "4"}, nil},
		{"mpirun of MPICH, two nodes", []string{"mpirun.mpich", "-launcher", "ssh", "-launcher-exec", rsh, "-f", mpichHosts, "-localhost", "127.0.0.1", "-n", "4"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			words := j.command(c.words...)
			cmd := s.command(ctx, words[0], words[1:]...)
			cmd.Dir, cmd.Env = j.dir, append(cmd.Env, c.env...)
			cmd.WaitDelay = 5 * time.Second
			start := time.Now()
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			t.Logf("%.1f s: %s", time.Since(start).Seconds(), out)
			require.Equal(t, want, j.result(t))
		})
	}

	t.Run("sbatch", func(t *testing.T) {
		script, err := filepath.Abs("../slurm/allreduce.sbatch")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		dir := t.TempDir()
		cmd := s.command(ctx, "sbatch", "--parsable", "-o", "log", script, program)
		cmd.Dir = dir
		id, err := cmd.Output()
		require.NoError(t, err)
		var state []byte // sbatch --wait looks too seldom
		require.Eventually(t, func() bool {
			state, err = s.command(ctx, "scontrol", "show", "job", strings.TrimSpace(string(id))).CombinedOutput()
			return err == nil && !strings.Contains(string(state), "EndTime=Unknown") && !strings.Contains(string(state), "JobState=RUNNING") &&
				!strings.Contains(string(state), "JobState=PENDING") && !strings.Contains(string(state), "JobState=COMPLETING")
		}, 50*time.Second, 100*time.Millisecond)
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		require.Contains(t, string(state), "JobState=COMPLETED", "%s", log)
		require.Contains(t, string(log), "8 ranks", "the script starts two nodes of four")
		t.Logf("%s", log)
	})

	for _, master := range []string{"127.0.0.1", "localhost"} {
		t.Run("torchrun's variables, "+master, func(t *testing.T) {
			j := newJob(t)
			port := freePorts(t, 1)[0]
			g, ctx := errgroup.WithContext(t.Context())
			for r := range launcherRanks {
				g.Go(func() error {
					words := j.command()
					cmd := exec.CommandContext(ctx, words[0], words[1:]...)
					cmd.Dir = j.dir
					cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=4", fmt.Sprintf("LOCAL_RANK=%d", r), "LOCAL_WORLD_SIZE=4",
						"MASTER_ADDR="+master, fmt.Sprintf("MASTER_PORT=%d", port), "TORCHELASTIC_RUN_ID="+filepath.Base(j.dir), "TORCHELASTIC_RESTART_COUNT=0")
					if out, err := cmd.CombinedOutput(); err != nil {
						return fmt.Errorf("rank %d: %w: %s", r, err, strings.TrimSpace(string(out)))
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
			require.Equal(t, want, j.result(t))
		})
	}
}

package bootstrap

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asRank, in the environment, makes the test binary a rank of a job: it connects by what its launcher
// left and prints what all ranks gave.
const asRank = "GCCL_TEST_AS_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(asRank) != "" {
		if err := beRank(); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func beRank() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg, source, err := FromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	g, err := Connect(ctx, cfg)
	if err != nil {
		return fmt.Errorf("%w (environment: %v)", err, source)
	}
	defer g.Close()
	all, err := g.AllGather(ctx, fmt.Appendf(nil, "%d", g.Rank()))
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, x := range all {
		fmt.Fprintf(&b, " %s", x)
	}
	fmt.Printf("launcher %s rank %d local %d/%d all%s\n", source.Launcher, g.Rank(), cfg.LocalRank, cfg.LocalSize, &b)
	return g.Barrier(ctx)
}

// launch runs a command that starts this test binary as ranks, and returns its lines in order.
func launch(t *testing.T, name string, args ...string) []string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, os.Args[0])...)
	cmd.Env = append(os.Environ(), asRank+"=1",
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	return lines
}

func TestUnderHydra(t *testing.T) {
	assert.Equal(t, []string{
		"launcher pmi rank 0 local 0/3 all 0 1 2",
		"launcher pmi rank 1 local 1/3 all 0 1 2",
		"launcher pmi rank 2 local 2/3 all 0 1 2",
	}, launch(t, "mpirun.mpich", "-n", "3"))
}

// fakeShell writes a remote shell that stays here, so that a launcher sees nodes where there is one. A
// node has temporary files of its own: two daemons of Open MPI make the same directory at once, and one
// would fail.
func fakeShell(t *testing.T) (dir, shell string) {
	dir = t.TempDir()
	shell = filepath.Join(dir, "shell")
	script := `#!/bin/sh
while :; do case "$1" in -*) shift;; *) break;; esac; done
TMPDIR=${0%/*}/$1; export TMPDIR; shift
mkdir -p "$TMPDIR"
exec sh -c "$*"
`
	require.NoError(t, os.WriteFile(shell, []byte(script), 0o755))
	return dir, shell
}

func TestUnderHydraOnSeveralNodes(t *testing.T) {
	dir, shell := fakeShell(t)
	hosts := filepath.Join(dir, "hosts")
	require.NoError(t, os.WriteFile(hosts, []byte("n1:2\nn2:2\n"), 0o644))
	assert.Equal(t, []string{
		"launcher pmi rank 0 local 0/2 all 0 1 2 3",
		"launcher pmi rank 1 local 1/2 all 0 1 2 3",
		"launcher pmi rank 2 local 0/2 all 0 1 2 3",
		"launcher pmi rank 3 local 1/2 all 0 1 2 3",
	}, launch(t, "mpirun.mpich", "-launcher", "ssh", "-launcher-exec", shell, "-f", hosts, "-localhost", "127.0.0.1", "-n", "4"))
}

func TestUnderOpenMPI(t *testing.T) {
	assert.Equal(t, []string{
		"launcher openmpi rank 0 local 0/3 all 0 1 2",
		"launcher openmpi rank 1 local 1/3 all 0 1 2",
		"launcher openmpi rank 2 local 2/3 all 0 1 2",
	}, launch(t, "mpirun.openmpi", "--oversubscribe", "-n", "3"))
}

func TestUnderOpenMPIOnSeveralNodes(t *testing.T) {
	dir, shell := fakeShell(t)
	hosts := filepath.Join(dir, "hosts")
	require.NoError(t, os.WriteFile(hosts, []byte("n1 slots=2\nn2 slots=2\n"), 0o644))
	assert.Equal(t, []string{
		"launcher openmpi rank 0 local 0/2 all 0 1 2 3",
		"launcher openmpi rank 1 local 1/2 all 0 1 2 3",
		"launcher openmpi rank 2 local 0/2 all 0 1 2 3",
		"launcher openmpi rank 3 local 1/2 all 0 1 2 3",
	}, launch(t, "mpirun.openmpi", "--mca", "plm_rsh_agent", shell, "--hostfile", hosts, "--oversubscribe", "-n", "4"))
}

package collective_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// roundsEnv is how often the confined process kills all ranks.
const roundsEnv = "GCCL_TEST_ROUNDS"

// All ranks are killed at any moment, again and again, where /dev/shm holds no more than 64 MiB: nothing
// is left of them, and the next job works.
func TestKillAllLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LOUD: not run, because a small /dev/shm of its own needs root")
	}
	rounds := 4
	if *thorough {
		rounds = 100
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workEnv+"=confined", roundsEnv+"="+strconv.Itoa(rounds), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, string(b))
	t.Logf("%s", b)
}

// workConfined is the process in a mount namespace of its own.
func workConfined(ctx context.Context) error {
	rounds, err := strconv.Atoi(os.Getenv(roundsEnv))
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m"); err != nil {
		return fmt.Errorf("a /dev/shm of 64 MiB: %w", err)
	}
	rng := rand.New(rand.NewPCG(7, 11))
	begun := 0
	for round := range rounds {
		var out output
		j := job("forever", 4, &out)
		j.Env = append(j.Env, "GCCL_PROVIDER="+[]string{"shm", "auto", "tcp"}[round%3])
		j.Started = func(ps []*os.Process) {
			// In one half of the rounds anywhere between exec and the first calls, in the other in the middle of calls.
			span := 500
			for end := time.Now().Add(20 * time.Second); round%2 == 1 && strings.Count(out.String(), "ready") < 4 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
				span = 30
			}
			time.Sleep(time.Duration(rng.IntN(span)) * time.Millisecond)
			for _, p := range ps {
				_ = p.Kill()
			}
		}
		if err := j.Run(ctx); err == nil {
			return fmt.Errorf("round %d: killed ranks ended well:\n%s", round, &out)
		}
		if strings.Contains(out.String(), "ready") {
			begun++
		}
		if left := remains(); len(left) > 0 {
			return fmt.Errorf("round %d left %v", round, left)
		}
	}
	var out output
	j := job("table", 4, &out)
	j.Env = append(j.Env, "GCCL_PROVIDER=shm")
	if err := j.Run(ctx); err != nil {
		return fmt.Errorf("after %d rounds: %w:\n%s", rounds, err, &out)
	}
	fmt.Printf("all ranks killed %d times, in %d after New; then a job of 4 worked\n", rounds, begun)
	return nil
}

// remains lists what killed ranks might leave: files, sockets with names of ours, processes.
func remains() (left []string) {
	for _, dir := range []string{"/dev/shm", os.TempDir()} {
		es, err := os.ReadDir(dir)
		if err != nil {
			return []string{err.Error()}
		}
		for _, e := range es {
			left = append(left, filepath.Join(dir, e.Name()))
		}
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err == nil && len(strings.Fields(string(children))) > 0 {
		left = append(left, "processes "+string(children))
	}
	for _, pid := range jobProcesses() {
		left = append(left, "process "+pid)
	}
	return left
}

// jobProcesses lists the processes that have this one's temporary directory, but for this one.
func jobProcesses() (pids []string) {
	es, _ := os.ReadDir("/proc")
	for _, e := range es {
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if _, no := strconv.Atoi(e.Name()); no != nil || err != nil || e.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		if slices.Contains(strings.Split(string(b), "\x00"), "TMPDIR="+os.TempDir()) {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

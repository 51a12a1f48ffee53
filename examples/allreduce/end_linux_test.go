package main

import (
	"fmt"
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
)

// running starts a job that goes on until somebody ends it, and returns when it has made a step.
func running(t *testing.T) (cmd *exec.Cmd, stdout, stderr *output, pids map[int]int) {
	t.Helper()
	cmd, stdout, stderr = start(t, t.TempDir(), "-n", "3", "-steps", "1000000", "-out", "w.safetensors")
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "tolerance") }, 60*time.Second, 5*time.Millisecond, "%s", stderr)
	pids = processesOf(t)
	require.Len(t, pids, 4)
	return cmd, stdout, stderr, pids
}

func TestInterrupt(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		cmd, stdout, stderr, _ := running(t)
		require.NoError(t, cmd.Process.Signal(sig))
		out := finish(t, cmd, stdout, stderr)
		require.Equal(t, code, out.code)
		require.Equal(t, "allreduce: "+sig.String()+"\n", out.stderr)
		allGone(t)
		require.Empty(t, names(t, cmd.Dir))
	}
}

func TestInterruptGoroutines(t *testing.T) {
	cmd, stdout, stderr := start(t, t.TempDir(), "-n", "3", "-provider", "loopback", "-steps", "1000000")
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "tolerance") }, 60*time.Second, 5*time.Millisecond, "%s", stderr)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	out := finish(t, cmd, stdout, stderr)
	require.Equal(t, 130, out.code)
	require.Equal(t, "allreduce: interrupt\n", out.stderr)
}

// A rank that is stopped keeps nobody longer than the timeout.
func TestRankHangs(t *testing.T) {
	cmd, stdout, stderr := start(t, t.TempDir(), "-n", "3", "-steps", "1000000", "-timeout", "5s")
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "tolerance") }, 60*time.Second, 5*time.Millisecond, "%s", stderr)
	require.NoError(t, syscall.Kill(processesOf(t)[1], syscall.SIGSTOP))
	out := finish(t, cmd, stdout, stderr)
	require.Equal(t, 1, out.code, out.stderr)
	require.Equal(t, 1, strings.Count(out.stderr, "\n"), out.stderr)
	require.Contains(t, out.stderr, "deadline exceeded")
	require.Contains(t, out.stderr, "rank 1 (pid")
	allGone(t)
}

func TestRankDies(t *testing.T) {
	for victim := range 3 {
		cmd, stdout, stderr, pids := running(t)
		require.NoError(t, syscall.Kill(pids[victim], syscall.SIGKILL))
		out := finish(t, cmd, stdout, stderr)
		require.Equal(t, 137, out.code)
		require.Equal(t, fmt.Sprintf("allreduce: rank %d: signal: killed\n", victim), out.stderr)
		allGone(t)
		require.Empty(t, names(t, cmd.Dir))
	}
}

func TestLauncherDies(t *testing.T) {
	cmd, _, _, _ := running(t)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	allGone(t)
}

// Rank 0 is killed while it writes: the output is there whole or not at all, and nothing else is.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	const n = 8 << 20
	file := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (%8d,), }", n)
	file = append(file, strings.Repeat(" ", 79-len(file))+"\n"...)
	file = append(file, make([]byte, 4*n)...)
	put(t, dir, "0.npy", file)
	put(t, dir, "1.npy", file)
	cmd, stdout, stderr := start(t, dir, "-n", "2", "-in", "%d.npy", "-out", "out.npy")
	hidden := func(name string) bool { return strings.HasPrefix(name, ".") }
	for cmd.ProcessState == nil && !slices.ContainsFunc(names(t, dir), hidden) && !slices.Contains(names(t, dir), "out.npy") {
		time.Sleep(time.Millisecond)
	}
	if pid, ok := processesOf(t)[0]; ok {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	out := finish(t, cmd, stdout, stderr)
	allGone(t)
	for _, name := range names(t, dir) {
		require.False(t, hidden(name), "%s is left, after exit code %d: %s", name, out.code, out.stderr)
		st, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		want := len(file)
		if name == "out.npy" {
			want = 128 + 4*n // gccl's header is longer
		}
		require.EqualValues(t, want, st.Size(), name)
	}
}

// processesOf lists the program's processes: rank → pid, the launcher as rank −1. The test runs one
// job at a time.
func processesOf(t *testing.T) map[int]int {
	t.Helper()
	found := map[int]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, d := range dirs {
		exe, err := os.Readlink(filepath.Join(d, "exe"))
		if err != nil || exe != program {
			continue
		}
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err != nil {
			continue
		}
		rank := -1
		for _, v := range strings.Split(string(env), "\x00") {
			if s, ok := strings.CutPrefix(v, "GCCL_RANK="); ok {
				rank, err = strconv.Atoi(s)
				require.NoError(t, err)
			}
		}
		pid, err := strconv.Atoi(filepath.Base(d))
		require.NoError(t, err)
		found[rank] = pid
	}
	return found
}

// allGone waits until no process of the program is left.
func allGone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(processesOf(t)) == 0 }, 10*time.Second, 5*time.Millisecond)
}

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMachineTime(t *testing.T) {
	busy, steal := machineTime("cpu  100 20 30 900 5 0 1 7 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	assert.Equal(t, 1500*time.Millisecond, busy)
	assert.Equal(t, 70*time.Millisecond, steal)
	busy, steal = machineTime("")
	assert.Zero(t, busy+steal)
}

func TestForeignShare(t *testing.T) {
	start := time.Unix(0, 0)
	a := usage{at: start}
	b := usage{at: start.Add(time.Second), busy: 1200 * time.Millisecond, ours: time.Second, steal: 100 * time.Millisecond}
	foreign, steal := a.since(b, 2)
	assert.InDelta(t, 0.1, foreign, 1e-9)
	assert.InDelta(t, 0.05, steal, 1e-9)
	b.ours = 2 * time.Second
	foreign, _ = a.since(b, 2)
	assert.Zero(t, foreign, "ticks are coarse: ours can exceed all")
}

func TestRollup(t *testing.T) {
	huge, all := rollup("00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss_Anon:  100 kB\nPss_Shmem: 60 kB\nAnonHugePages: 20 kB\nShmemPmdMapped: 8 kB\n")
	assert.Equal(t, 28<<10, huge)
	assert.Equal(t, 160<<10, all)
	assert.Equal(t, "4 KiB", (&pages{huge, all}).String())
	assert.Equal(t, "huge", (&pages{all, all}).String())
	assert.Equal(t, "unknown", (&pages{}).String())
}

func TestMerge(t *testing.T) {
	assert.Equal(t, "near", merge("near", "near"))
	assert.Equal(t, "mixed", merge("near", "far"))
}

// What a launch leaves behind is ended, in its process group and outside.
func TestExecuteLeavesNothing(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
	pids := filepath.Join(t.TempDir(), "pids")
	// Both ignore the polite request; the first has left the group by the time it says its id.
	script := `trap '' TERM; setsid sh -c 'echo $$ >>` + pids + `; exec sleep 60' & sleep 60 & echo $! >>` + pids + `; wait`
	seen := false
	ctx, cancel := context.WithCancel(t.Context())
	_, err := execute(ctx, time.Minute, []string{"sh", "-c", script}, nil, func(int) {
		if b, _ := os.ReadFile(pids); strings.Count(string(b), "\n") == 2 {
			seen = true
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, seen)
	for p := range strings.FieldsSeq(mustRead(t, pids)) {
		pid, err := strconv.Atoi(p)
		require.NoError(t, err)
		assert.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, 10*time.Millisecond, "process %d", pid)
	}
}

// gone says that a process has ended, be it that its parent has not noticed.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestExecuteEndsAtItsLimit(t *testing.T) {
	_, err := execute(t.Context(), 50*time.Millisecond, []string{"sleep", "60"}, nil, nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestLockKeepsTwoRunsApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(path)
	require.NoError(t, err)
	_, err = lock(path)
	assert.ErrorContains(t, err, "another run")
	require.NoError(t, unlock())
	unlock, err = lock(path)
	require.NoError(t, err)
	require.NoError(t, unlock())
}

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whichever rank is killed, the job becomes complete again and its result is right.
func TestElastic(t *testing.T) {
	program := filepath.Join(t.TempDir(), "elastic")
	built, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(built))
	for _, args := range [][]string{nil, {"-n", "3", "-victim", "2"}, {"-n", "2", "-victim", "-1"}, {"-n", "2", "-victim", "0"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		cancel()
		text := string(out)
		require.NoError(t, err, text)
		require.Contains(t, text, "right to 1e-9 on all ranks", text)
		if len(args) == 0 {
			require.Contains(t, text, "generation 1: goes on without")
			require.Contains(t, text, "of 4, generation 2: 1 more")
			require.Equal(t, 1, strings.Count(text, "launcher: kills rank 0"))
		}
	}
}

// What cannot be played is refused, by the flag's name.
func TestElasticRefuses(t *testing.T) {
	good := options{ranks: 4, steps: 30, timeout: time.Minute}
	require.NoError(t, good.check(nil))
	require.ErrorContains(t, good.check([]string{"x"}), `"x" is no flag`)
	for want, change := range map[string]func(*options){
		"-n 1":       func(o *options) { o.ranks = 1 },
		"-victim 4":  func(o *options) { o.victim = 4 },
		"-steps 4":   func(o *options) { o.steps = 4 },
		"-timeout 0": func(o *options) { o.timeout = 0 },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, o.check(nil), want)
	}
}

// A launcher that is told to end ends its ranks, and leaves no file.
func TestElasticLeavesNothing(t *testing.T) {
	program, tmp := filepath.Join(t.TempDir(), "elastic"), t.TempDir()
	built, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(built))
	ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-n", "2", "-victim", "-1", "-steps", "1000000")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "step 5 ") {
	}
	meet, err := filepath.Glob(filepath.Join(tmp, "elastic-*"))
	require.NoError(t, err)
	require.Len(t, meet, 1)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() { // until its ranks, too, have ended
	}
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.NoDirExists(t, meet[0])
}

// Ranks' parts add up to the gradient of one.
func TestGradient(t *testing.T) {
	m := newModel()
	m.apply(m.gradient(0, 1))
	whole := m.gradient(0, 1)
	for _, size := range []int{2, 3, 7} {
		sum := make([]float64, len(whole))
		for r := range size {
			for k, v := range m.gradient(r, size) {
				sum[k] += v
			}
		}
		require.InDeltaSlice(t, whole, sum, 1e-15)
	}
}

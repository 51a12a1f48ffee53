package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is the path of the example, built once by TestMain.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "allreduce-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "allreduce")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	return m.Run()
}

// outcome is what a run of the program left.
type outcome struct {
	code           int
	stdout, stderr string
}

// start starts the program in dir.
func start(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, stdout, stderr *output) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	stdout, stderr = &output{}, &output{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 5 * time.Second
	require.NoError(t, cmd.Start())
	return cmd, stdout, stderr
}

// finish waits for a program that was started.
func finish(t *testing.T, cmd *exec.Cmd, stdout, stderr *output) outcome {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil {
		require.ErrorAs(t, err, &exit)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func runProgram(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	cmd, stdout, stderr := start(t, dir, args...)
	return finish(t, cmd, stdout, stderr)
}

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// names lists a folder, hidden files too.
func names(t *testing.T, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}

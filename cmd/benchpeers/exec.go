package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// tag marks the environment of everything that a job starts, so that what escapes its process group
// is found as well.
const tag = "BENCHPEERS_JOB"

// execution is what running a command took.
type execution struct {
	out  []byte
	wall time.Duration
}

// execute runs a command in a process group of its own and leaves no process behind, whatever happens.
// While it runs, watch is called now and then with the group's id.
func execute(ctx context.Context, limit time.Duration, args, env []string, watch func(pgid int)) (execution, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	id := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(append(os.Environ(), env...), tag+"="+id)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return execution{}, err
	}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if watch == nil {
			return
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				watch(cmd.Process.Pid)
			}
		}
	}()
	err := cmd.Wait()
	close(done)
	<-watched
	e := execution{out: out.Bytes(), wall: time.Since(start)}
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group is usually gone already
		killTagged(id)
	}
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("after %v: %w", e.wall.Round(time.Second), ctx.Err()), err)
	}
	return e, err
}

// killTagged ends the processes that carry the id in their environment.
func killTagged(id string) {
	want := []byte(tag + "=" + id)
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(b, []byte{0}) {
			if !bytes.Equal(v, want) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
			}
		}
	}
}

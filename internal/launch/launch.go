// Package launch starts the ranks of a job as processes of this host: the same program several
// times, with the environment that tells each its place, its output prefixed by its rank, and an end
// for all when one fails.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap"
)

// RootFD is the variable that tells rank 0 which inherited descriptor is its listening socket. The
// launcher binds it beforehand, so that nobody can take the port between choice and use.
const RootFD = "GCCL_ROOT_FD"

// Job describes the processes to start.
type Job struct {
	Args []string // program and arguments, the same for all ranks
	Size int
	Env  []string // added to this process's environment
	// Stdout and Stderr receive the ranks' output by whole lines; nil: this process's.
	Stdout, Stderr io.Writer
	// Prefix puts "[rank] " before every line.
	Prefix bool
	// Bind keeps rank r on the core of number r, modulo their count, of those this process may use.
	// It has no effect where the system has no such call.
	Bind bool
	// Torch also sets torchrun's variables, for programs that know only those. MASTER_PORT is free
	// when Run looks, and for the program's own use.
	Torch bool
	// Grace is how long ranks have between SIGTERM and SIGKILL once one has failed; 0: 2 seconds.
	Grace time.Duration
	// Survive leaves the other ranks alone when one fails: they are to notice and go on, or end, by
	// themselves.
	Survive bool
	// Started is called with the ranks' processes when all run.
	Started func([]*os.Process)
}

// ExitError is the end of the first rank that failed.
type ExitError struct {
	Rank int
	Code int // exit code, or 128 + signal as shells have it
	Err  error
}

// Error says which rank ended how.
func (e *ExitError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

type ended struct {
	rank int
	err  error
}

// Run starts all ranks and waits for them. When one fails, or ctx ends, the others are told to
// end (SIGTERM, then SIGKILL), and die with this process in any case. It returns the first
// failure as *ExitError, or ctx's error.
func (j *Job) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("launch: listening socket for rank 0: %w", err)
	}
	root := ln.Addr().String()
	file, err := ln.(*net.TCPListener).File()
	ln.Close()
	if err != nil {
		return fmt.Errorf("launch: listening socket for rank 0: %w", err)
	}
	defer file.Close()

	// The parent-death signal is tied to the thread that forks: keep it until all have ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := &lines{out: j.Stdout, err: j.Stderr}
	if out.out == nil {
		out.out = os.Stdout
	}
	if out.err == nil {
		out.err = os.Stderr
	}
	master := ""
	if j.Torch {
		if master, err = freePort(); err != nil {
			return err
		}
	}
	cmds := make([]*exec.Cmd, 0, j.Size)
	ends := make(chan ended, j.Size)
	var fail error
	for r := range j.Size {
		cmd := exec.Command(j.Args[0], j.Args[1:]...)
		cmd.Env = append(os.Environ(), j.Env...)
		cmd.Env = append(cmd.Env, "GCCL_RANK="+strconv.Itoa(r), "GCCL_SIZE="+strconv.Itoa(j.Size),
			"GCCL_LOCAL_RANK="+strconv.Itoa(r), "GCCL_LOCAL_SIZE="+strconv.Itoa(j.Size), "GCCL_ROOT="+root)
		if j.Torch {
			cmd.Env = append(cmd.Env, torchEnv(r, j.Size, master)...)
		}
		if r == 0 {
			cmd.ExtraFiles = []*os.File{file}
			cmd.Env = append(cmd.Env, RootFD+"=3")
		}
		cmd.SysProcAttr = attributes()
		prefix := ""
		if j.Prefix {
			prefix = fmt.Sprintf("[%d] ", r)
		}
		stdout, stderr := out.writer(prefix, false), out.writer(prefix, true)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		cmd.WaitDelay = time.Second // for grandchildren that keep the pipes
		restore := func() {}
		if j.Bind {
			restore = affinity(r) // which the child inherits
		}
		err := cmd.Start()
		restore()
		if err != nil {
			fail = &ExitError{Rank: r, Code: 127, Err: err}
			break
		}
		cmds = append(cmds, cmd)
		go func() {
			err := cmd.Wait()
			stdout.flush()
			stderr.flush()
			ends <- ended{r, err}
		}()
	}
	if fail == nil && j.Started != nil {
		ps := make([]*os.Process, len(cmds))
		for i, c := range cmds {
			ps[i] = c.Process
		}
		j.Started(ps)
	}
	return j.await(ctx, cmds, ends, fail)
}

// await collects the ranks' ends.
func (j *Job) await(ctx context.Context, cmds []*exec.Cmd, ends chan ended, fail error) error {
	grace := j.Grace
	if grace == 0 {
		grace = 2 * time.Second
	}
	var kill <-chan time.Time
	stop := func(err error) {
		fail = err
		for _, c := range cmds {
			terminate(c.Process)
		}
		kill = time.After(grace)
	}
	if fail != nil {
		stop(fail)
	}
	done := ctx.Done()
	for left := len(cmds); left > 0; {
		select {
		case e := <-ends:
			left--
			switch {
			case e.err == nil || fail != nil:
			case j.Survive:
				fail = exitError(e)
			default:
				stop(exitError(e))
			}
		case <-done:
			done = nil
			if kill == nil {
				stop(cmp.Or(fail, context.Cause(ctx)))
			}
		case <-kill:
			for _, c := range cmds {
				_ = c.Process.Kill()
			}
		}
	}
	return fail
}

func exitError(e ended) error {
	code := 1
	var x *exec.ExitError
	if errors.As(e.err, &x) {
		code = exitCode(x.ProcessState)
	}
	return &ExitError{Rank: e.rank, Code: code, Err: e.err}
}

// lines serialises the output of several processes by whole lines.
type lines struct {
	mu       sync.Mutex
	out, err io.Writer
}

type lineWriter struct {
	all    *lines
	to     io.Writer
	prefix string
	rest   []byte
}

func (l *lines) writer(prefix string, toErr bool) *lineWriter {
	w := &lineWriter{all: l, to: l.out, prefix: prefix}
	if toErr {
		w.to = l.err
	}
	return w
}

// maxLine is where a line without an end is cut.
const maxLine = 64 << 10

func (w *lineWriter) Write(b []byte) (int, error) {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != '\n' {
			i++
		}
		w.rest = append(w.rest, b[:i]...)
		if i == len(b) && len(w.rest) < maxLine {
			break
		}
		w.emit()
		if i == len(b) {
			break
		}
		b = b[i+1:]
	}
	return n, nil
}

func (w *lineWriter) emit() {
	_, _ = fmt.Fprintf(w.to, "%s%s\n", w.prefix, w.rest)
	w.rest = w.rest[:0]
}

func (w *lineWriter) flush() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if len(w.rest) > 0 {
		w.emit()
	}
}

// Inherit gives rank 0 the listening socket that its launcher bound for it, if there is one.
func Inherit(cfg *bootstrap.Config) error {
	s := os.Getenv(RootFD)
	if s == "" || cfg.Rank != 0 {
		return nil
	}
	fd, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%s=%q: %w", RootFD, s, err)
	}
	f := os.NewFile(uintptr(fd), "root socket")
	if cfg.Listener, err = net.FileListener(f); err != nil {
		return fmt.Errorf("%s=%d: %w", RootFD, fd, err)
	}
	if err := os.Unsetenv(RootFD); err != nil { // it is taken
		return err
	}
	return f.Close()
}

// Package launch starts the ranks of a job as processes of this host, and of others through a remote
// shell: the same program several times, with the environment that tells each its place, its output
// prefixed by its rank, and an end for all when one fails.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"
)

// Job describes the processes to start.
type Job struct {
	Args []string // program and arguments, the same for all ranks
	Size int
	Env  []string // added to this process's environment; ranks on other hosts get it and forwarded alone
	// Stdout and Stderr receive the ranks' output by whole lines; nil: this process's.
	Stdout, Stderr io.Writer
	// Prefix puts "[rank] " before every line.
	Prefix bool
	// Bind keeps rank r on the core of number r, modulo their count, of those this process may use.
	// It has no effect where the system has no such call.
	Bind bool
	// Hosts are where ranks run, block by block; nil: all here. A host whose name is not this one's is
	// reached by Shell, and rank r then finds rank 0 by Root.
	Hosts []Host
	// Shell is the remote shell and its options; nil: ssh, never asking for a password. It is called with
	// a host and one word more, which that host's sh must execute.
	Shell []string
	// Root is where rank 0 listens, if some ranks are on other hosts: a host, "host:port" or a list of
	// them as in GCCL_ROOT; empty: rank 0's host, as Hosts names it, and ports that follow from the job.
	Root string
	// Torch also sets torchrun's variables, for programs that know only those. MASTER_PORT is free
	// when Run looks (29500 if there are other hosts), and for the program's own use.
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

// outputDelay is how long a rank's output is read after its end if another process, which it has started, keeps
// it open. It has to suffice for what the rank itself wrote last, also where a thousand ranks keep this process from
// running.
const outputDelay = 2 * time.Second

type ended struct {
	rank int
	err  error
}

// Run starts all ranks and waits for them. When one fails, or ctx ends, the others are told to
// end (SIGTERM, then SIGKILL), and die with this process in any case. It returns the first
// failure as *ExitError, or ctx's error.
func (j *Job) Run(ctx context.Context) error {
	seats, err := j.seats()
	if err != nil {
		return err
	}
	meeting, err := j.meeting(seats)
	if err != nil {
		return err
	}
	defer meeting.close()

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
	procs := make([]*process, 0, j.Size)
	ends := make(chan ended, j.Size)
	var fail error
	for r, seat := range seats {
		p, err := j.command(r, seat, meeting)
		if err != nil {
			fail = &ExitError{Rank: r, Code: 127, Err: err}
			break
		}
		prefix := ""
		if j.Prefix {
			prefix = fmt.Sprintf("[%d] ", r)
		}
		stdout, stderr := out.writer(prefix, false), out.writer(prefix, true)
		p.Stdout, p.Stderr = stdout, stderr
		p.WaitDelay = outputDelay
		restore := func() {}
		if j.Bind {
			restore = affinity(seat.local) // which the child inherits
		}
		err = p.start()
		restore()
		if err != nil {
			fail = &ExitError{Rank: r, Code: 127, Err: err}
			break
		}
		procs = append(procs, p)
		go func() {
			err := p.wait()
			stdout.flush()
			stderr.flush()
			ends <- ended{r, err}
		}()
	}
	if fail == nil && j.Started != nil {
		ps := make([]*os.Process, len(procs))
		for i, p := range procs {
			ps[i] = p.Process
		}
		j.Started(ps)
	}
	return j.await(ctx, procs, ends, fail)
}

// command is the process that is, or reaches, a rank.
func (j *Job) command(r int, seat seat, m *meeting) (*process, error) {
	env := append([]string{"GCCL_RANK=" + strconv.Itoa(r), "GCCL_SIZE=" + strconv.Itoa(j.Size),
		"GCCL_LOCAL_RANK=" + strconv.Itoa(seat.local), "GCCL_LOCAL_SIZE=" + strconv.Itoa(seat.locals)}, m.env...)
	if j.Torch {
		env = append(env, torchEnv(r, j.Size, seat, m)...)
	}
	if seat.remote {
		return j.remote(seat.host, append(append(forwarded(os.Environ()), j.Env...), env...))
	}
	p := &process{Cmd: exec.Command(j.Args[0], j.Args[1:]...)}
	p.Env = append(append(os.Environ(), j.Env...), env...)
	if r == 0 && m.file != nil {
		p.ExtraFiles = []*os.File{m.file}
		p.Env = append(p.Env, RootFD+"=3")
	}
	p.SysProcAttr = attributes()
	return p, nil
}

// await collects the ranks' ends.
func (j *Job) await(ctx context.Context, procs []*process, ends chan ended, fail error) error {
	grace := j.Grace
	if grace == 0 {
		grace = 2 * time.Second
	}
	var kill <-chan time.Time
	stop := func(err error) {
		fail = err
		for _, p := range procs {
			p.terminate()
		}
		kill = time.After(grace)
	}
	if fail != nil {
		stop(fail)
	}
	done := ctx.Done()
	for left := len(procs); left > 0; {
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
			again := false
			for _, p := range procs {
				again = p.kill() || again
			}
			if kill = nil; again {
				kill = time.After(grace)
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

// Command elastic is gccl's example of a job that goes on while ranks come and go. It starts ranks as
// processes, which fit a small model together, kills one of them (rank 0, unless told otherwise), starts
// another in its place, and checks that the result is the one of a single process.
//
//	elastic                   4 ranks; rank 0 is killed after a few steps
//	elastic -n 8 -victim 3 -steps 100
//
// Its exit status is 0 if the job became complete again and its result is right.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gccl/gccl/internal/launch"
)

// roleEnv tells a process that this program started what it is: "rank", or "newcomer".
const roleEnv = "ELASTIC_ROLE"

// killStep is the step that must have been made before the victim is killed.
const killStep = 5

type options struct {
	ranks, victim, steps int
	pace, timeout        time.Duration
}

// check refuses what cannot be played.
func (o *options) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("%q is no flag", args[0])
	case o.ranks < 2 || o.ranks > 64:
		return fmt.Errorf("-n %d: want 2 to 64 ranks", o.ranks)
	case o.victim < -1 || o.victim >= o.ranks:
		return fmt.Errorf("-victim %d: want a rank from 0 to %d, or -1 for none", o.victim, o.ranks-1)
	case o.steps < killStep:
		return fmt.Errorf("-steps %d: want at least %d, after which the victim is killed", o.steps, killStep)
	case o.pace < 0 || o.timeout <= 0:
		return fmt.Errorf("-pace %v -timeout %v: want no negative times, and some to end in", o.pace, o.timeout)
	}
	return nil
}

func main() {
	var o options
	flag.IntVar(&o.ranks, "n", 4, "ranks to start, and to go on until there are so many again")
	flag.IntVar(&o.victim, "victim", 0, "rank that is killed; -1: none")
	flag.IntVar(&o.steps, "steps", 30, "training steps at least")
	flag.DurationVar(&o.pace, "pace", 20*time.Millisecond, "time that a step takes beside its communication")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "longest time for all of it")
	flag.Parse()
	if err := o.check(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "elastic:", err)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // so that the launcher ends its ranks and leaves nothing
	defer stop()
	run := launchAll
	if role := os.Getenv(roleEnv); role != "" {
		run = func(ctx context.Context, o options) error { return live(ctx, o, role == "newcomer") }
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "elastic: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// launchAll starts the ranks, kills the victim and starts a newcomer. The newcomer finds the others by a
// directory that they share.
func launchAll(ctx context.Context, o options) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	meet, err := os.MkdirTemp("", "elastic-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(meet)
	env := []string{"GCCL_RUN_ID=elastic", "GCCL_SECRET=" + rand.Text(), "GCCL_RENDEZVOUS=file://" + meet}
	out := &watched{to: os.Stdout, mark: fmt.Sprintf("step %d ", killStep), seen: make(chan struct{})}
	args := append([]string{exe}, os.Args[1:]...)
	ranks := launch.Job{Args: args, Size: o.ranks, Env: append(env, roleEnv+"=rank"), Stdout: out, Survive: true}
	newcomer := launch.Job{Args: args, Size: 1, Env: append(env, roleEnv+"=newcomer"), Stdout: out}
	var others sync.WaitGroup
	var joined error
	ranks.Started = func(ps []*os.Process) {
		if o.victim < 0 {
			return
		}
		others.Go(func() {
			select {
			case <-out.seen:
			case <-ctx.Done():
				return
			}
			fmt.Fprintf(out, "launcher: kills rank %d (pid %d) and starts another process\n", o.victim, ps[o.victim].Pid)
			_ = ps[o.victim].Kill() // that it has ended already is as well
			joined = newcomer.Run(ctx)
		})
	}
	err = ranks.Run(ctx)
	others.Wait()
	var exit *launch.ExitError
	if errors.As(err, &exit) && exit.Rank == o.victim && exit.Code == 128+9 {
		err = nil // as intended
	}
	return errors.Join(err, joined)
}

// watched passes lines on and closes seen at the first that contains a text.
type watched struct {
	to   io.Writer
	mark string
	seen chan struct{}

	mu   sync.Mutex
	done bool
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done && bytes.Contains(b, []byte(w.mark)) {
		w.done = true
		close(w.seen)
	}
	return w.to.Write(b)
}

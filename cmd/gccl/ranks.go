package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/gccl/gccl/internal/launch"
	"github.com/spf13/cobra"
)

// rankEnv carries the options of perf and tune, as JSON, to the processes that are their ranks.
const rankEnv = "GCCL_TOOL_OPTIONS"

// rankErrorMark begins the line in which a rank tells its launcher why it failed.
const rankErrorMark = "\x01gccl-rank-error "

// startRanks runs this program's own sub-command as the ranks of a job on this host. When ranks fail,
// which is often all of them for one reason, it returns the reason of the first one.
func startRanks(ctx context.Context, size int, options any, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := json.Marshal(options)
	if err != nil {
		return err
	}
	errs := &rankErrors{out: os.Stderr, said: map[int]string{}}
	j := launch.Job{Args: append([]string{exe}, args...), Size: size, Env: []string{rankEnv + "=" + string(b)}, Stderr: errs}
	// As mpirun does it: left alone, ranks may begin on one core, and the kernel takes a while to part them. That holds
	// where they share cores, too, as long as they can do so evenly.
	j.Bind = size <= runtime.NumCPU() || size%runtime.NumCPU() == 0
	return errs.explain(j.Run(ctx))
}

// rankErrors passes on what ranks write to standard error, line by line, and keeps their last words.
type rankErrors struct {
	out  io.Writer
	mu   sync.Mutex
	said map[int]string
}

// Write implements io.Writer; it is called with whole lines.
func (r *rankErrors) Write(b []byte) (int, error) {
	rest, ok := bytes.CutPrefix(b, []byte(rankErrorMark))
	if !ok {
		return r.out.Write(b)
	}
	rank, text, _ := strings.Cut(strings.TrimSpace(string(rest)), " ")
	n, err := strconv.Atoi(rank)
	if err != nil {
		return r.out.Write(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[n] == "" {
		r.said[n] = text
	}
	return len(b), nil
}

// explain adds to the end of a rank what it said.
func (r *rankErrors) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e *launch.ExitError
	if errors.As(err, &e) && r.said[e.Rank] != "" {
		return &launch.ExitError{Rank: e.Rank, Code: e.Code, Err: errors.New(r.said[e.Rank])}
	}
	return err
}

// wantRanks refuses a --ranks that asks for none.
func wantRanks(cmd *cobra.Command, ranks int) error {
	if cmd.Flags().Changed("ranks") && ranks < 1 {
		return fmt.Errorf("--ranks %d: need at least one rank", ranks)
	}
	return nil
}

func oneLine(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ") }

// rankOptions reads what the launching process chose, if this process was started by startRanks.
func rankOptions(into any) error {
	s := os.Getenv(rankEnv)
	if s == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(s), into); err != nil {
		return fmt.Errorf("%s: %w", rankEnv, err)
	}
	return nil
}

// Command gccl measures, plans, simulates and inspects collectives, and starts ranks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/gccl/gccl/internal/launch"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signals()
	err := command(os.Stdout).ExecuteContext(ctx)
	stop()
	if err != nil {
		report(os.Stderr, err)
	}
	os.Exit(exitCode(err))
}

// command is the tree of commands, which print to out.
func command(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "gccl",
		Short:         "The Go Collective Communication Library's tools",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(out)
	root.AddCommand(perfCommand(), tuneCommand(), planCommand(), simCommand(), envCommand(), runCommand(), startupCommand(), versionCommand(), whyCommand())
	return root
}

// signalError is the end of a command by a signal.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return "stopped by signal: " + e.sig.String() }

// signals returns a context that SIGINT and SIGTERM end. A second one ends the process as it would
// without.
func signals() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-ch
		signal.Stop(ch)
		if s != nil {
			cancel(&signalError{s})
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
	}
}

// errTimeout is the end of a command by its --timeout.
var errTimeout = errors.New("timed out")

// exitCode is 0, that of the first rank that failed, 128 + a signal's number, 124 after a timeout as
// timeout(1) has it, and else 1.
func exitCode(err error) int {
	var e *launch.ExitError
	var s *signalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &s):
		if n, ok := s.sig.(syscall.Signal); ok {
			return 128 + int(n)
		}
	case errors.Is(err, errTimeout):
		return 124
	}
	return 1
}

// report prints one line for an error: of a rank that was started here, which then prints nothing
// itself, to whoever started it (see rankErrors).
func report(w io.Writer, err error) {
	if os.Getenv(rankEnv) != "" {
		_, _ = fmt.Fprintf(w, "%s%s %v\n", rankErrorMark, os.Getenv("GCCL_RANK"), oneLine(err))
		return
	}
	_, _ = fmt.Fprintln(w, "gccl:", err)
}

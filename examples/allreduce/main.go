// Command allreduce is gccl's example and the launcher of a job on one host. It starts ranks as
// processes (or, with -provider loopback, as goroutines), which combine tensors by AllReduce and
// check the result.
//
//	allreduce                                     4 ranks train a small classifier on real images
//	allreduce -n 3 -in 'grad-%d.npy' -op avg -out avg.npy
//	                                              3 ranks average the tensors of their files
//	mpirun -n 4 allreduce -n 0                    the ranks are another launcher's
//
// Its exit status is 0, or that of the first rank that failed; 2 for wrong arguments; 130 and 143
// after SIGINT and SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gccl/gccl/internal/launch"
)

func main() { os.Exit(run()) }

// interrupted is the signal that ends the program, as a cause for its context.
type interrupted struct{ sig syscall.Signal }

func (e interrupted) Error() string { return e.sig.String() }

func run() int {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(os.Stderr, err)
		return 2
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s, _ := (<-signals).(syscall.Signal)
		signal.Stop(signals) // a second one ends this process at once, and the ranks with it
		cancel(interrupted{s})
	}()
	switch {
	case o.Ranks == 0:
		return process(ctx, o)
	case o.Provider == loopback:
		err = goroutines(ctx, o, os.Stdout)
	default:
		err = processes(ctx, o)
	}
	var sig interrupted
	switch exit := (*launch.ExitError)(nil); {
	case err == nil:
		return 0
	case errors.As(context.Cause(ctx), &sig):
		complain(os.Stderr, sig)
		return 128 + int(sig.sig)
	case errors.As(err, &exit):
		if exit.Code > 125 { // it had no chance to say why
			complain(os.Stderr, err)
		}
		return exit.Code
	default:
		complain(os.Stderr, err)
		return 1
	}
}

// complain prints the one line that says what went wrong.
func complain(to *os.File, err error) {
	fmt.Fprintf(to, "allreduce: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
}

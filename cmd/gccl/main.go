// Command gccl measures, plans, simulates and inspects collectives.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gccl/gccl/internal/launch"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "gccl",
		Short:         "The Go Collective Communication Library's tools",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(perfCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gccl:", err)
		os.Exit(exitCode(err))
	}
}

func exitCode(err error) int {
	var e *launch.ExitError
	if errors.As(err, &e) {
		return e.Code
	}
	return 1
}

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gccl/gccl/internal/launch"
	"github.com/spf13/cobra"
)

// runOptions are the flags of mpirun, srun and torchrun that people type.
type runOptions struct {
	ranks   int
	export  []string
	timeout time.Duration
	tag     bool
	bind    string
}

func runCommand() *cobra.Command {
	o := runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS…]",
		Short: "Start a program as the ranks of a job on this host",
		Long: "Starts the program once for each rank. Every rank gets GCCL_RANK, GCCL_SIZE, GCCL_LOCAL_RANK,\n" +
			"GCCL_LOCAL_SIZE and GCCL_ROOT, and torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR\n" +
			"and MASTER_PORT, beside the environment of this process. Output comes out by whole lines.\n\n" +
			"When a rank fails, the others get SIGTERM, and SIGKILL two seconds later; so they do when this process\n" +
			"gets SIGINT or SIGTERM. They do not outlive it, whatever ends it. The exit code is that of the first\n" +
			"rank that failed, or 128 + the signal that ended it; 128 + the signal that ended this process; 124\n" +
			"after --timeout; 127 if the program cannot be started; else 0.",
		Example: "  gccl run -n 4 -l ./train -epochs 3\n  gccl run -n 2 -x GCCL_DEBUG=info --timeout 10m -- ./train",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.IntVarP(&o.ranks, "ranks", "n", 1, "number of ranks")
	f.StringArrayVarP(&o.export, "export", "x", nil, "VAR=VALUE to set for the ranks, or VAR, which they get anyway; may be repeated")
	f.DurationVar(&o.timeout, "timeout", 0, "longest run; 0: no limit")
	f.BoolVarP(&o.tag, "tag-output", "l", false, `begin every line of output with "[rank] "`)
	f.StringVar(&o.bind, "bind-to", "none", "none, or core: rank r stays on the r-th core of this process's, counted round")
	return cmd
}

func (o *runOptions) run(ctx context.Context, args []string) error {
	j := launch.Job{Args: args, Size: o.ranks, Prefix: o.tag, Torch: true}
	if o.ranks < 1 {
		return fmt.Errorf("-n %d: need at least one rank", o.ranks)
	}
	switch o.bind {
	case "none":
	case "core":
		j.Bind = true
	default:
		return fmt.Errorf("--bind-to %s: need none or core", o.bind)
	}
	for _, x := range o.export {
		name, _, ok := strings.Cut(x, "=")
		if name == "" {
			return fmt.Errorf("-x %s: need VAR or VAR=VALUE", x)
		}
		if !ok {
			if _, there := os.LookupEnv(name); !there {
				return fmt.Errorf("-x %s: it is not set", name)
			}
			continue
		}
		j.Env = append(j.Env, x)
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("%w after %v", errTimeout, o.timeout))
		defer cancel()
	}
	return j.Run(ctx)
}

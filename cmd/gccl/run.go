package main

import (
	"cmp"
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
	survive bool

	hosts, hostFile string
	shell, root     string
}

func runCommand() *cobra.Command {
	o := runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS…]",
		Short: "Start a program as the ranks of a job, here or on several hosts",
		Long: "Starts the program once for each rank. Every rank gets GCCL_RANK, GCCL_SIZE, GCCL_LOCAL_RANK,\n" +
			"GCCL_LOCAL_SIZE and GCCL_ROOT, and torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR\n" +
			"and MASTER_PORT, beside the environment of this process. Output comes out by whole lines; one above 64 KiB is broken. Ranks\n" +
			"have no standard input.\n\n" +
			"With --hosts a:2,b:2 or --hostfile, ranks fill the hosts in that order; those on other hosts are started\n" +
			"by ssh, or what --rsh or GCCL_RSH names, in the same directory, with the variables GCCL_*, NCCL_*, GLOO_*\n" +
			"and those of -x. They are given a secret and find rank 0 at the first host, as it is named in the list,\n" +
			"or at --root. A rank ends with its remote shell.\n\n" +
			"When a rank fails, the others get SIGTERM, and SIGKILL two seconds later, unless --survive leaves them to\n" +
			"themselves (Comm.Shrink); so they do when this process gets SIGINT or SIGTERM. They do not outlive it,\n" +
			"whatever ends it. A process that a rank has started and left behind is not ended; if it holds the rank's\n" +
			"output, the job's end waits for it for up to 2 s.\n\n" +
			"The exit code is that of the first rank that failed, or 128 + the signal that ended it; 255 if its remote\n" +
			"shell failed; 128 + the signal that ended this process; 124 after --timeout; 127 if the program cannot be\n" +
			"started; else 0.",
		Example: "  gccl run -n 4 -l ./train -epochs 3\n  gccl run -n 2 -x GCCL_DEBUG=info --timeout 10m -- ./train\n" +
			"  gccl run -n 4 --hosts a:2,b:2 --rsh 'ssh -p 2222' -- ./train",
		Args: some("a PROGRAM to start, as in gccl run -n 4 -- ./train"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.IntVarP(&o.ranks, "ranks", "n", 0, "number of ranks; 0: as many as the hosts have room for, or 1 without hosts")
	f.StringArrayVarP(&o.export, "export", "x", nil, "VAR=VALUE to set for the ranks, or VAR, which they get anyway; may be repeated")
	f.DurationVar(&o.timeout, "timeout", 0, "longest run; 0: no limit")
	f.BoolVarP(&o.tag, "tag-output", "l", false, `begin every line of output with "[rank] "`)
	f.StringVar(&o.bind, "bind-to", "none", "none, or core: each rank stays on a core of its own, in turn if there are more ranks than cores")
	f.BoolVar(&o.survive, "survive", false, "when a rank fails, leave the others alone, which may shrink and go on")
	f.StringVar(&o.hosts, "hosts", "", "hosts and how many ranks each takes: a:2,b:2; localhost and this host's own name are here")
	f.StringVar(&o.hostFile, "hostfile", "", "file with a host a line: a slots=2, or a:2")
	f.StringVar(&o.shell, "rsh", "", "remote shell with its options (default GCCL_RSH, then ssh)")
	f.StringVar(&o.root, "root", "", "where rank 0 listens if ranks are on other hosts: host or host:port (default: the first host)")
	cmd.MarkFlagsMutuallyExclusive("hosts", "hostfile")
	return cmd
}

func (o *runOptions) run(ctx context.Context, args []string) error {
	j := launch.Job{Args: args, Prefix: o.tag, Torch: true, Root: o.root, Survive: o.survive}
	if err := o.place(&j); err != nil {
		return err
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

// place says how many ranks run where.
func (o *runOptions) place(j *launch.Job) (err error) {
	switch {
	case o.hosts != "":
		if j.Hosts, err = launch.ParseHosts(o.hosts); err != nil {
			return fmt.Errorf("--hosts: %w", err)
		}
	case o.hostFile != "":
		f, err := os.Open(o.hostFile)
		if err != nil {
			return fmt.Errorf("--hostfile: %w", err)
		}
		defer f.Close()
		if j.Hosts, err = launch.ReadHosts(f); err != nil {
			return fmt.Errorf("--hostfile %s: %w", o.hostFile, err)
		}
	}
	room := 0
	for _, h := range j.Hosts {
		room += h.Slots
	}
	j.Size = o.ranks
	switch {
	case o.ranks == 0:
		j.Size = max(1, room)
	case o.ranks < 0:
		return fmt.Errorf("-n %d: need at least one rank", o.ranks)
	case j.Hosts != nil && o.ranks > room:
		return fmt.Errorf("-n %d: the hosts have room for %d ranks", o.ranks, room)
	}
	j.Shell = strings.Fields(cmp.Or(o.shell, os.Getenv("GCCL_RSH")))
	return nil
}

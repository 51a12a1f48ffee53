// Command benchpeers measures gccl against OpenMPI, MPICH and Gloo on this host, all in one interleaved
// run, together with what the memory and the cores permit, and writes docs/performance.md and its plot.
//
// It installs the peers from Debian's packages where they are missing, builds them and cmd/gccl, and runs
// round after round: in each, for every number of ranks and collective, every configuration once, in an
// order that rotates, so that whatever disturbs the machine disturbs all alike. A lock file keeps two runs
// apart.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "benchpeers",
		Short: "Measure gccl against OpenMPI, MPICH and Gloo",
		Long: "Measures gccl against OpenMPI, MPICH and Gloo on this host, and replaces the tables of performance.md by what\n" +
			"it found. It installs the peers' Debian packages where they are missing. Lists have commas between, sizes may\n" +
			"end in K, M or G. Let nothing else run meanwhile.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			root, err := moduleRoot(cmd.Context())
			if err != nil {
				return err
			}
			if o.Docs == "" {
				o.Docs = filepath.Join(root, "docs")
			}
			if o.Out == "" {
				o.Out = filepath.Join(root, "bin", "benchpeers.json")
			}
			if o.Report == "" {
				if err := measure(cmd.Context(), &o, root); err != nil {
					return err
				}
				o.Report = o.Out
			}
			return writeReport(o.Report, o.Docs)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ranks, "ranks", "", "numbers of ranks (default 2,4,8)")
	f.StringVar(&o.colls, "coll", "", "collectives (default all)")
	f.StringVar(&o.sizes, "sizes", "", "sizes, for all numbers of ranks (default 8 … 256M, fewer for more ranks)")
	f.StringVar(&o.configs, "configs", "", "configurations by name (default all)")
	f.IntVar(&o.Rounds, "rounds", 0, "how often everything is measured (default 3)")
	f.DurationVar(&o.Budget, "budget", defaultBudget, "time for the calls of one cell")
	f.BoolVar(&o.Quick, "only-quick", false, "about two minutes: few collectives, sizes and configurations, one round, unless other flags say more")
	f.Float64Var(&o.MaxForeign, "max-foreign", 0.03, "share of the CPUs that others may use before a measurement is repeated")
	f.StringVar(&o.Out, "out", "", "raw rows, one JSON object a line (default bin/benchpeers.json)")
	f.StringVar(&o.Docs, "docs", "", "folder of performance.md, whose tables are replaced, and performance.svg (default docs)")
	f.StringVar(&o.Report, "report", "", "measure nothing: write the report from this file of rows")
	return cmd
}

// measure makes a whole run under the lock.
func measure(ctx context.Context, o *options, root string) (err error) {
	unlock, err := lock(filepath.Join(os.TempDir(), "gccl-benchpeers.lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	b, err := build(ctx, root)
	if err != nil {
		return err
	}
	out, err := create(o.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	r := &runner{o: o, bin: b, out: out, failures: map[string]int{}}
	return r.run(ctx)
}

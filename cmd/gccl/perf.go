package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/internal/launch"
	"github.com/gccl/gccl/tensor"
	"github.com/spf13/cobra"
)

// perfOptions are the flags of nccl-tests, and some more.
type perfOptions struct {
	Collective         string
	Min, Max           int
	Step               int
	Factor             float64
	Sizes              []int
	Iters, Warmup      int
	Budget             time.Duration
	DType, Op          string
	Root               int
	Check, Alloc, JSON bool
	Ranks              int
	Profile            string // rank 0's CPU profile goes to this file
}

// perfCollectives are the programs of nccl-tests, and what it lacks.
var perfCollectives = []string{"allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather", "scatter", "alltoall", "sendrecv", "pingpong", "scan", "barrier"}

// perfEnv carries the options to the rank processes.
const perfEnv = "GCCL_PERF_OPTIONS"

func perfCommand() *cobra.Command {
	o := perfOptions{}
	var minS, maxS, stepS, sizes string
	cmd := &cobra.Command{
		Use:   "perf COLLECTIVE",
		Short: "Measure a collective: flags and columns as nccl-tests",
		Long: "Measures " + strings.Join(perfCollectives, ", ") + ".\n\n" +
			"With --ranks N it starts N processes of itself on this host; without, it takes its place from the\n" +
			"launcher's environment. time is the mean of back-to-back calls on the slowest rank; size is the larger\n" +
			"of a rank's buffers; busbw is algbw times 2(n-1)/n (allreduce), (n-1)/n (allgather, reducescatter,\n" +
			"alltoall, gather, scatter) or 1.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Collective = args[0]
			if err := o.parse(minS, maxS, stepS, sizes); err != nil {
				return err
			}
			if o.Ranks > 0 {
				return perfLaunch(cmd.Context(), &o)
			}
			return perfRank(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&minS, "minbytes", "b", "8", "smallest size")
	f.StringVarP(&maxS, "maxbytes", "e", "64M", "largest size")
	f.StringVarP(&stepS, "stepbytes", "i", "", "increment between sizes, instead of a factor")
	f.Float64VarP(&o.Factor, "stepfactor", "f", 2, "factor between sizes")
	f.StringVar(&sizes, "sizes", "", "list of sizes, instead of a range")
	f.IntVarP(&o.Iters, "iters", "n", 0, "calls per size; 0: as many as fit into --budget")
	f.IntVarP(&o.Warmup, "warmup_iters", "w", 5, "calls before")
	f.DurationVar(&o.Budget, "budget", 100*time.Millisecond, "time per size without -n")
	f.StringVarP(&o.DType, "datatype", "d", "float", "element type")
	f.StringVarP(&o.Op, "op", "o", "sum", "sum, prod, min, max, avg")
	f.IntVarP(&o.Root, "root", "r", 0, "root rank")
	f.BoolVarP(&o.Check, "check", "c", true, "check every element")
	f.BoolVarP(&o.Alloc, "register", "R", false, "use registered buffers (Comm.Alloc)")
	f.BoolVar(&o.JSON, "json", false, "one JSON object per size instead of the table")
	f.StringVar(&o.Profile, "cpuprofile", "", "write a CPU profile of rank 0 to this file")
	f.IntVar(&o.Ranks, "ranks", 0, "start this many ranks on this host")
	return cmd
}

func (o *perfOptions) parse(minS, maxS, stepS, sizes string) (err error) {
	if !slices.Contains(perfCollectives, o.Collective) {
		return fmt.Errorf("unknown collective %q; there are %s", o.Collective, strings.Join(perfCollectives, ", "))
	}
	for _, f := range []struct {
		text string
		at   *int
	}{{minS, &o.Min}, {maxS, &o.Max}, {stepS, &o.Step}} {
		if f.text == "" {
			continue
		}
		if *f.at, err = collective.ParseBytes(f.text); err != nil {
			return err
		}
	}
	if sizes != "" {
		for _, s := range strings.Split(sizes, ",") {
			n, err := collective.ParseBytes(s)
			if err != nil {
				return err
			}
			o.Sizes = append(o.Sizes, n)
		}
	}
	if o.Step == 0 && o.Factor <= 1 {
		return fmt.Errorf("-f %v: the factor between sizes must exceed 1", o.Factor)
	}
	if o.Min < 0 || o.Max < o.Min {
		return fmt.Errorf("sizes from %d to %d", o.Min, o.Max)
	}
	if _, err := tensor.ParseDType(o.DType); err != nil {
		return err
	}
	_, err = tensor.ParseOp(o.Op)
	return err
}

// sizes lists the sizes to measure.
func (o *perfOptions) sizes() []int {
	if o.Collective == "barrier" {
		return []int{0}
	}
	if len(o.Sizes) > 0 {
		return o.Sizes
	}
	var out []int
	for n := o.Min; n <= o.Max; {
		out = append(out, n)
		next := n + o.Step
		if o.Step == 0 {
			next = max(n+1, int(float64(n)*o.Factor))
		}
		n = next
	}
	return out
}

// perfLaunch starts the ranks.
func perfLaunch(ctx context.Context, o *perfOptions) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	child := *o
	child.Ranks = 0
	b, err := json.Marshal(child)
	if err != nil {
		return err
	}
	j := launch.Job{Args: []string{exe, "perf", o.Collective}, Size: o.Ranks, Env: []string{perfEnv + "=" + string(b)}}
	return j.Run(ctx)
}

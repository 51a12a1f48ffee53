package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/spf13/cobra"
)

// perfOptions are the flags of nccl-tests, and some more.
type perfOptions struct {
	Collective    string
	Min, Max      int
	Step          int
	Factor        float64
	Sizes         []int
	Iters, Warmup int
	Cycles        int
	Window        int // stream: messages of a call
	Budget        time.Duration
	DType, Op     string
	Root          string
	Check         bool
	Alloc         bool
	Each          bool   // statistics over single calls
	JSON          string // file, or "-"
	Format        string // nccl or osu
	Ranks         int
	Profile       string // rank 0's CPU profile goes to this file
	Args          []string
}

func perfCommand() *cobra.Command {
	o := perfOptions{}
	check := 1
	cmd := &cobra.Command{
		Use:   "perf COLLECTIVE",
		Short: "Measure a collective: flags and columns as nccl-tests",
		Long: "Measures " + strings.Join(benchmarkNames(), ", ") + ".\n\n" +
			"With --ranks N it starts N processes of itself on this host; without, it takes its place from the\n" +
			"launcher's environment. time is the mean of back-to-back calls on the slowest rank; size is the larger\n" +
			"of a rank's buffers; busbw is algbw times 2(n-1)/n (allreduce), (n-1)/n (allgather, reducescatter,\n" +
			"alltoall, gather, scatter) or 1. pingpong is half a round trip between ranks 0 and 1, stream one Send\n" +
			"after the other from rank 0 to rank 1, or --window of them in a Group.\n\n" +
			"Sizes may end in K, M or G (of 1024). The exit code is not 0 if an element is wrong.",
		Example: "  gccl perf allreduce --ranks 4\n  gccl perf broadcast --ranks 2 -b 1K -e 1M -f 4 -R\n" +
			"  gccl perf pingpong --ranks 2 --sizes 8,4K -I\n  mpirun -n 8 gccl perf allreduce",
		Args: oneOf(benchmarkNames()),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Collective, o.Check, o.Args = args[0], check > 0, os.Args
			if err := o.validate(); err != nil {
				return err
			}
			if err := wantRanks(cmd, o.Ranks); err != nil {
				return err
			}
			if err := rankOptions(&o); err != nil {
				return err
			}
			if o.Ranks == 1 && o.benchmark().pairwise {
				return fmt.Errorf("--ranks 1: %s needs two ranks", o.Collective)
			}
			if o.Ranks > 0 {
				child := o
				child.Ranks = 0
				return startRanks(cmd.Context(), o.Ranks, child, "perf", o.Collective)
			}
			return perfRank(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.VarP(byteFlag(&o.Min, 8), "minbytes", "b", "smallest size")
	f.VarP(byteFlag(&o.Max, 64<<20), "maxbytes", "e", "largest size")
	f.VarP(byteFlag(&o.Step, 0), "stepbytes", "i", "increment between sizes, instead of a factor")
	f.Float64VarP(&o.Factor, "stepfactor", "f", 2, "factor between sizes")
	f.Var((*byteSizes)(&o.Sizes), "sizes", "these sizes, instead of a range")
	f.IntVarP(&o.Iters, "iters", "n", 0, "calls per size; 0: as many as fit into --budget")
	f.IntVarP(&o.Warmup, "warmup_iters", "w", 5, "with -n: calls of a size before those that count")
	f.IntVarP(&o.Cycles, "run_cycles", "N", 1, "times to go through all sizes; 0: for ever")
	f.DurationVar(&o.Budget, "budget", 100*time.Millisecond, "time per size without -n")
	f.StringVarP(&o.DType, "datatype", "d", "float", "element type, or all")
	f.StringVarP(&o.Op, "op", "o", "sum", "sum, prod, min, max, avg …, or all")
	f.StringVarP(&o.Root, "root", "r", "0", "root rank, or all")
	f.IntVarP(&check, "check", "c", 1, "check every element after each size: 0 no, 1 yes")
	f.BoolVarP(&o.Alloc, "register", "R", false, "use registered buffers (Comm.Alloc)")
	f.IntVarP(&o.Window, "window", "W", 1, "stream: messages of a call, which is a Group if there are several")
	f.BoolVarP(&o.Each, "iteration-stats", "I", false, "time every call by itself, and show min, max, mean and percentiles")
	f.StringVarP(&o.JSON, "json", "J", "", "write the results to this file as nccl-tests does; - for standard output, without the table")
	f.StringVar(&o.Format, "format", "nccl", "table: nccl, osu (latency tables of the OSU micro-benchmarks), or jsonl (an object a size)")
	f.StringVar(&o.Profile, "cpuprofile", "", "write a CPU profile of rank 0 to this file")
	f.IntVar(&o.Ranks, "ranks", 0, "start this many ranks on this host (-n is nccl-tests' number of calls)")
	return cmd
}

// benchmark is what is measured. It is nil for what validate refuses.
func (o *perfOptions) benchmark() *benchmark { return benchmarkNamed(o.Collective) }

// validate refuses what is wrong for every rank.
func (o *perfOptions) validate() error {
	switch {
	case o.benchmark() == nil:
		return fmt.Errorf("unknown collective %q; there are %s", o.Collective, strings.Join(benchmarkNames(), ", "))
	case o.Step == 0 && o.Factor <= 1:
		return fmt.Errorf("-f %v: the factor between sizes must exceed 1", o.Factor)
	case o.Max < o.Min:
		return fmt.Errorf("-b %s -e %s: the smallest size exceeds the largest", sizeText(o.Min), sizeText(o.Max))
	case o.Window < 1 || o.Window > 1 && o.Collective != "stream":
		return fmt.Errorf("--window %d: stream alone has one, of at least a message", o.Window)
	case o.Iters < 0 || o.Warmup < 0 || o.Cycles < 0:
		return fmt.Errorf("-n %d -w %d -N %d: numbers of calls and cycles cannot be negative", o.Iters, o.Warmup, o.Cycles)
	case o.Iters == 0 && o.Budget <= 0:
		return fmt.Errorf("--budget %v: need a time, or -n", o.Budget)
	case !slices.Contains([]string{"nccl", "osu", "jsonl"}, o.Format):
		return fmt.Errorf("--format %s: need nccl, osu or jsonl", o.Format)
	}
	types, err := o.types()
	if err != nil {
		return err
	}
	ops, err := o.ops()
	if err != nil {
		return err
	}
	if len(types) == 1 && len(ops) == 1 {
		if err := o.benchmark().refuses(types[0], ops[0], max(1, o.Ranks)); err != nil {
			return err
		}
	}
	if r, err := strconv.Atoi(o.Root); o.Root != "all" && (err != nil || r < 0) {
		return fmt.Errorf("-r %s: need a rank, or all", o.Root)
	}
	most := o.Max
	switch {
	case o.Collective == "barrier":
		most = 0
	case len(o.Sizes) > 0:
		most = slices.Max(o.Sizes)
	}
	return roomFor(o.Ranks, float64(o.Window)*float64(most))
}

// types lists the element types to measure.
func (o *perfOptions) types() ([]tensor.DType, error) {
	if o.DType == "all" {
		return tensor.DTypes(), nil
	}
	dt, err := tensor.ParseDType(o.DType)
	if err != nil {
		return nil, fmt.Errorf("-d %s: need all, or one of %v", o.DType, tensor.DTypes())
	}
	return []tensor.DType{dt}, nil
}

// ops lists the operations to measure: one where the collective has none.
func (o *perfOptions) ops() ([]tensor.Op, error) {
	if o.Op == "all" {
		if !o.benchmark().reduces {
			return []tensor.Op{tensor.Sum}, nil
		}
		return []tensor.Op{tensor.Sum, tensor.Prod, tensor.Min, tensor.Max, tensor.Avg}, nil
	}
	op, err := tensor.ParseOp(o.Op)
	if err != nil {
		return nil, fmt.Errorf("-o %s: need all, or one of %v", o.Op, tensor.Ops())
	}
	return []tensor.Op{op}, nil
}

// roots lists the roots to measure.
func (o *perfOptions) roots(size int) ([]int, error) {
	if o.Root == "all" && o.benchmark().rooted {
		var all []int
		for r := range size {
			all = append(all, r)
		}
		return all, nil
	}
	r, _ := strconv.Atoi(o.Root) // 0 for "all", of what has no root
	if r >= size {
		return nil, fmt.Errorf("-r %s: there are %d ranks", o.Root, size)
	}
	return []int{r}, nil
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

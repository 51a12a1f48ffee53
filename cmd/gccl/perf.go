package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
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

// perfCollectives are the programs of nccl-tests, and what it lacks.
var perfCollectives = []string{"allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather", "scatter", "alltoall", "sendrecv", "pingpong", "stream", "scan", "exscan", "barrier"}

func perfCommand() *cobra.Command {
	o := perfOptions{}
	var minS, maxS, stepS, sizes string
	check := 1
	cmd := &cobra.Command{
		Use:   "perf COLLECTIVE",
		Short: "Measure a collective: flags and columns as nccl-tests",
		Long: "Measures " + strings.Join(perfCollectives, ", ") + ".\n\n" +
			"With --ranks N it starts N processes of itself on this host; without, it takes its place from the\n" +
			"launcher's environment. time is the mean of back-to-back calls on the slowest rank; size is the larger\n" +
			"of a rank's buffers; busbw is algbw times 2(n-1)/n (allreduce), (n-1)/n (allgather, reducescatter,\n" +
			"alltoall, gather, scatter) or 1. stream is one Send after the other from rank 0 to rank 1,\nor --window of them in a Group. The exit code is not 0 if an element is wrong.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Collective, o.Check, o.Args = args[0], check > 0, os.Args
			if err := o.parse(minS, maxS, stepS, sizes); err != nil {
				return err
			}
			if err := wantRanks(cmd, o.Ranks); err != nil {
				return err
			}
			if err := rankOptions(&o); err != nil {
				return err
			}
			if o.Ranks == 1 && o.pairwise() {
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
	f.StringVarP(&minS, "minbytes", "b", "8", "smallest size")
	f.StringVarP(&maxS, "maxbytes", "e", "64M", "largest size")
	f.StringVarP(&stepS, "stepbytes", "i", "", "increment between sizes, instead of a factor")
	f.Float64VarP(&o.Factor, "stepfactor", "f", 2, "factor between sizes")
	f.StringVar(&sizes, "sizes", "", "list of sizes, instead of a range")
	f.IntVarP(&o.Iters, "iters", "n", 0, "calls per size; 0: as many as fit into --budget")
	f.IntVarP(&o.Warmup, "warmup_iters", "w", 5, "calls before")
	f.IntVarP(&o.Cycles, "run_cycles", "N", 1, "times to go through all sizes; 0: for ever")
	f.DurationVar(&o.Budget, "budget", 100*time.Millisecond, "time per size without -n")
	f.StringVarP(&o.DType, "datatype", "d", "float", "element type, or all")
	f.StringVarP(&o.Op, "op", "o", "sum", "sum, prod, min, max, avg …, or all")
	f.StringVarP(&o.Root, "root", "r", "0", "root rank, or all")
	f.IntVarP(&check, "check", "c", 1, "check every element: 0 or 1")
	f.BoolVarP(&o.Alloc, "register", "R", false, "use registered buffers (Comm.Alloc)")
	f.IntVarP(&o.Window, "window", "W", 1, "stream: messages of a call, which is a Group if there are several")
	f.BoolVarP(&o.Each, "iteration-stats", "I", false, "time every call by itself, and show min, max, mean and percentiles")
	f.StringVarP(&o.JSON, "json", "J", "", "write the results to this file as nccl-tests does; - for standard output, without the table")
	f.StringVar(&o.Format, "format", "nccl", "table: nccl, osu (latency tables of the OSU micro-benchmarks), or jsonl (an object a size)")
	f.StringVar(&o.Profile, "cpuprofile", "", "write a CPU profile of rank 0 to this file")
	f.IntVar(&o.Ranks, "ranks", 0, "start this many ranks on this host (-n is nccl-tests' number of calls)")
	return cmd
}

// pairwise reports whether the measurement is between ranks 0 and 1.
func (o *perfOptions) pairwise() bool { return o.Collective == "pingpong" || o.Collective == "stream" }

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
	switch {
	case o.Step == 0 && o.Factor <= 1:
		return fmt.Errorf("-f %v: the factor between sizes must exceed 1", o.Factor)
	case o.Step < 0 || o.Min < 0 || o.Max < 0:
		return fmt.Errorf("-b %d -e %d -i %d: sizes cannot be negative", o.Min, o.Max, o.Step)
	case o.Window < 1 || o.Window > 1 && o.Collective != "stream":
		return fmt.Errorf("--window %d: stream alone has one, of at least a message", o.Window)
	case o.Max < o.Min:
		return fmt.Errorf("-b %d -e %d: the smallest size exceeds the largest", o.Min, o.Max)
	case o.Format != "nccl" && o.Format != "osu" && o.Format != "jsonl":
		return fmt.Errorf("--format %s: need nccl or osu, or jsonl", o.Format)
	}
	if _, err := o.types(); err != nil {
		return err
	}
	if _, err := o.ops(); err != nil {
		return err
	}
	if _, err := strconv.Atoi(o.Root); err != nil && o.Root != "all" {
		return fmt.Errorf("-r %s: need a rank, or all", o.Root)
	}
	return nil
}

// types lists the element types to measure.
func (o *perfOptions) types() ([]tensor.DType, error) {
	if o.DType == "all" {
		return tensor.DTypes(), nil
	}
	dt, err := tensor.ParseDType(o.DType)
	return []tensor.DType{dt}, err
}

// ops lists the operations to measure: one where the collective has none.
func (o *perfOptions) ops() ([]tensor.Op, error) {
	if o.Op == "all" {
		if !o.reduces() {
			return []tensor.Op{tensor.Sum}, nil
		}
		return []tensor.Op{tensor.Sum, tensor.Prod, tensor.Min, tensor.Max, tensor.Avg}, nil
	}
	op, err := tensor.ParseOp(o.Op)
	return []tensor.Op{op}, err
}

// roots lists the roots to measure.
func (o *perfOptions) roots(size int) ([]int, error) {
	if o.Root == "all" && o.rooted() {
		var all []int
		for r := range size {
			all = append(all, r)
		}
		return all, nil
	}
	r, _ := strconv.Atoi(o.Root)
	if r < 0 || r >= size {
		return nil, fmt.Errorf("-r %s: there are %d ranks", o.Root, size)
	}
	return []int{r}, nil
}

func (o *perfOptions) reduces() bool {
	return slices.Contains([]string{"allreduce", "reduce", "reducescatter", "scan", "exscan"}, o.Collective)
}

func (o *perfOptions) rooted() bool {
	return slices.Contains([]string{"reduce", "broadcast", "gather", "scatter"}, o.Collective)
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/schedule"
	"github.com/spf13/cobra"
)

// tuneOptions are the flags of tune.
type tuneOptions struct {
	Ranks       int
	Collectives []string
	Min, Max    int
	Factor      float64
	Budget      time.Duration
	Rounds      int
	File        string
	Merge       bool
}

func tuneCommand() *cobra.Command {
	o := tuneOptions{}
	var minS, maxS string
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Measure the algorithms on this machine and write a tuning file",
		Long: "Measures every algorithm of every collective with each set of its parameters, on ordinary and on\n" +
			"registered buffers, and writes the times to a file that GCCL_TUNING_FILE=FILE makes communicators on this\n" +
			"machine choose by. With --ranks N it starts N processes of itself; without, it takes its place from the\n" +
			"launcher's environment and rank 0 writes the file. GCCL_ALGO restricts what is measured.\n\n" +
			"A time is the mean of back-to-back calls of float32 sums on the slowest rank, the best of a few rounds in\n" +
			"turn. Let nothing else run meanwhile.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			for _, f := range []struct {
				text string
				at   *int
			}{{minS, &o.Min}, {maxS, &o.Max}} {
				if *f.at, err = collective.ParseBytes(f.text); err != nil {
					return err
				}
			}
			if err := wantRanks(cmd, o.Ranks); err != nil {
				return err
			}
			if err := rankOptions(&o); err != nil {
				return err
			}
			if o.Min < 1 || o.Max < o.Min || o.Factor <= 1 || o.Rounds < 1 {
				return fmt.Errorf("sizes from %d to %d by %v, %d rounds", o.Min, o.Max, o.Factor, o.Rounds)
			}
			for _, name := range o.Collectives {
				if _, err := schedule.ParseCollective(name); err != nil {
					return err
				}
			}
			if o.Ranks > 0 {
				child := o
				child.Ranks = 0
				return startRanks(cmd.Context(), o.Ranks, child, "tune")
			}
			return tuneRank(cmd.Context(), &o)
		},
	}
	var all []string
	for _, c := range schedule.Collectives() {
		all = append(all, c.String())
	}
	f := cmd.Flags()
	f.IntVarP(&o.Ranks, "ranks", "n", 0, "start this many ranks on this host")
	f.StringSliceVar(&o.Collectives, "collective", all, "collectives to measure")
	f.StringVarP(&minS, "minbytes", "b", "16", "smallest size")
	f.StringVarP(&maxS, "maxbytes", "e", "16M", "largest size")
	f.Float64VarP(&o.Factor, "stepfactor", "f", 4, "factor between sizes")
	f.DurationVar(&o.Budget, "budget", 10*time.Millisecond, "time for one candidate at one size in one round")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds, of which the best counts")
	f.StringVarP(&o.File, "output", "o", "gccl-tuning.json", "file to write")
	f.BoolVar(&o.Merge, "merge", true, "keep what the file has measured in other situations")
	return cmd
}

// tuneRank is one rank's part.
func tuneRank(ctx context.Context, o *tuneOptions) error {
	comm, err := connect(ctx, func(cfg *collective.Config) { cfg.TuningFile = "" })
	if err != nil {
		return err
	}
	if comm.Rank() == 0 {
		if err := o.writable(); err != nil {
			return err
		}
	}
	entries, err := o.measure(ctx, comm)
	if err != nil {
		return err
	}
	if comm.Rank() == 0 {
		if err := o.write(entries); err != nil {
			return err
		}
		fmt.Printf("%s: %d measurements of %d ranks on %v\n", o.File, len(entries), comm.Size(), collective.ThisMachine())
	}
	return comm.Close()
}

// writable finds before the measurements, which take long, what would keep write from succeeding.
func (o *tuneOptions) writable() error {
	if _, err := o.former(); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(o.File), filepath.Base(o.File)+".*")
	if err != nil {
		return fmt.Errorf("--output %s: %w", o.File, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// former is what the file holds, if that is to be kept.
func (o *tuneOptions) former() (*tuner.File, error) {
	if !o.Merge {
		return &tuner.File{}, nil
	}
	old, err := tuner.Load(o.File, collective.ThisMachine())
	switch {
	case err == nil:
		return old, nil
	case errors.Is(err, fs.ErrNotExist):
		return &tuner.File{}, nil
	}
	return nil, fmt.Errorf("%w (--merge=false replaces the file)", err)
}

// write merges the measurements into the file.
func (o *tuneOptions) write(entries []tuner.Entry) error {
	here := collective.ThisMachine()
	file, err := o.former()
	if err != nil {
		return err
	}
	file.Machine, file.Created = here, time.Now().UTC().Format(time.RFC3339)
	file.Merge(entries)
	return file.Save(o.File)
}

// measure times everything.
func (o *tuneOptions) measure(ctx context.Context, comm *collective.Comm) (entries []tuner.Entry, err error) {
	for _, registered := range []bool{false, true} {
		p := &perf{o: &perfOptions{Alloc: registered, DType: "float", Op: "sum"}, comm: comm}
		if err := p.types(); err != nil {
			return nil, err
		}
		if err := p.allocate(ctx, o.Max/p.dt.Size()+comm.Size()); err != nil {
			return nil, err
		}
		for _, name := range o.Collectives {
			for size := float64(o.Min); size <= float64(o.Max); size *= o.Factor {
				call := p.callFor(name, int(size), 0)
				if call.Dst.Len() == 0 && call.Src.Len() == 0 {
					continue // less than an element for each rank
				}
				es, err := o.candidates(ctx, p, call)
				if err != nil {
					return nil, err
				}
				entries = append(entries, es...)
				if comm.Rank() == 0 {
					best := slices.MinFunc(es, func(a, b tuner.Entry) int { return int(a.Nanos - b.Nanos) })
					fmt.Fprintf(os.Stderr, "%-14s %-10s %9s  %10s  %s, %d channels, chunks of %s\n", name,
						map[bool]string{true: "registered", false: "ordinary"}[registered], sizeText(best.Bytes),
						timeText(time.Duration(best.Nanos)), best.Algorithm, best.Channels, sizeText(best.Chunk))
				}
			}
		}
		if err := p.free(); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// hopeless is how many times slower than the best a candidate must be in its first call to be given up.
const hopeless = 10

// candidates times the candidates of one call, in turn, several rounds. Ranks agree on all times, so that
// they do the same.
func (o *tuneOptions) candidates(ctx context.Context, p *perf, call collective.Call) ([]tuner.Entry, error) {
	cands, err := p.comm.Candidates(call)
	if err != nil {
		return nil, err
	}
	type run struct {
		cand     tuner.Candidate
		prepared *collective.Prepared
		first    float64 // µs
		best     float64
	}
	var runs []run
	fastest := 0.0
	for _, c := range cands {
		if c.Refused != "" {
			continue
		}
		r := run{cand: c}
		if r.prepared, err = p.comm.PrepareAs(call, c); err != nil {
			return nil, err
		}
		for range 2 { // the first one touches memory
			if r.first, err = p.batch(ctx, r.prepared.Run, 1); err != nil {
				return nil, fmt.Errorf("%v by %v: %w", call, c, err)
			}
		}
		if fastest == 0 || r.first < fastest {
			fastest = r.first
		}
		r.best = r.first
		runs = append(runs, r)
	}
	budget := float64(o.Budget.Microseconds())
	for range o.Rounds {
		for i := range runs {
			r := &runs[i]
			if r.first > hopeless*fastest {
				continue
			}
			n := max(1, min(2000, int(budget/r.best)))
			us, err := p.batch(ctx, r.prepared.Run, n)
			if err != nil {
				return nil, fmt.Errorf("%v by %v: %w", call, r.cand, err)
			}
			r.best = min(r.best, us)
		}
	}
	var entries []tuner.Entry
	for _, r := range runs {
		e, err := p.comm.TuningEntry(call, r.cand, int64(r.best*1e3))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%v: no algorithm may serve it: %s", call, strings.Join(refusals(cands), "; "))
	}
	return entries, nil
}

func refusals(cands []tuner.Candidate) (list []string) {
	for _, c := range cands {
		list = append(list, c.Algorithm+": "+c.Refused)
	}
	return list
}

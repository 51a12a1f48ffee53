package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
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
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Measure the algorithms on this machine and write a tuning file",
		Long: "Measures every algorithm of every collective with each set of its parameters, on ordinary and on\n" +
			"registered buffers, and writes the times to a file that GCCL_TUNING_FILE=FILE makes communicators on this\n" +
			"machine choose by. With --ranks N it starts N processes of itself; without, it takes its place from the\n" +
			"launcher's environment and rank 0 writes the file. GCCL_ALGO restricts what is measured.\n\n" +
			"A time is the mean of back-to-back calls of float32 sums on the slowest rank, the best of a few rounds in\n" +
			"turn. Let nothing else run meanwhile.",
		Args:    cobra.NoArgs,
		Example: "  gccl tune --ranks 4 -o tuning.json\n  srun gccl tune -o /shared/tuning.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wantRanks(cmd, o.Ranks); err != nil {
				return err
			}
			if err := rankOptions(&o); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			if o.Ranks > 0 {
				child := o
				child.Ranks = 0
				return startRanks(cmd.Context(), o.Ranks, child, "tune")
			}
			return tuneRank(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.Ranks, "ranks", "n", 0, "start this many ranks on this host")
	f.StringSliceVar(&o.Collectives, "collective", collectiveNames(), "collectives to measure")
	f.VarP(byteFlag(&o.Min, 16), "minbytes", "b", "smallest size")
	f.VarP(byteFlag(&o.Max, 16<<20), "maxbytes", "e", "largest size")
	f.Float64VarP(&o.Factor, "stepfactor", "f", 4, "factor between sizes")
	f.DurationVar(&o.Budget, "budget", 10*time.Millisecond, "time for one candidate at one size in one round")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds, of which the best counts")
	f.StringVarP(&o.File, "output", "o", "gccl-tuning.json", "file to write")
	f.BoolVar(&o.Merge, "merge", true, "keep what the file has measured in other situations")
	return cmd
}

// validate refuses what is wrong for every rank.
func (o *tuneOptions) validate() error {
	switch {
	case o.Min < 1 || o.Max < o.Min:
		return fmt.Errorf("-b %s -e %s: need sizes from 1 byte on, the smallest first", sizeText(o.Min), sizeText(o.Max))
	case o.Factor <= 1:
		return fmt.Errorf("-f %v: the factor between sizes must exceed 1", o.Factor)
	case o.Rounds < 1:
		return fmt.Errorf("--rounds %d: need at least one", o.Rounds)
	case o.Budget <= 0:
		return fmt.Errorf("--budget %v: need a time", o.Budget)
	case o.Ranks == 1:
		return errTuneAlone
	}
	if _, err := o.collectives(); err != nil {
		return err
	}
	return roomFor(o.Ranks, float64(o.Max))
}

var errTuneAlone = errors.New("one rank has nothing to choose: start more with --ranks N, or by a launcher")

// collectives are those to measure.
func (o *tuneOptions) collectives() (list []schedule.Collective, err error) {
	for _, name := range o.Collectives {
		c, err := collectiveNamed(name)
		if err != nil {
			return nil, fmt.Errorf("--collective: %w", err)
		}
		list = append(list, c)
	}
	return list, nil
}

// tuneRank is one rank's part.
func tuneRank(ctx context.Context, o *tuneOptions) error {
	comm, err := connect(ctx, func(cfg *collective.Config) { cfg.TuningFile = "" })
	if err != nil {
		return err
	}
	if comm.Size() == 1 {
		return errors.Join(errTuneAlone, comm.Close())
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
	colls, err := o.collectives()
	if err != nil {
		return nil, err
	}
	for _, registered := range []bool{false, true} {
		p := &perf{o: &perfOptions{Alloc: registered}, comm: comm, dt: tensor.Float32, op: tensor.Sum}
		if err := p.allocate(ctx, o.Max/p.dt.Size()+comm.Size()); err != nil {
			return nil, err
		}
		for _, coll := range colls {
			for size := float64(o.Min); size <= float64(o.Max); size *= o.Factor {
				call := p.callFor(coll, int(size), 0)
				if call.Dst.Len() == 0 && call.Src.Len() == 0 {
					continue // less than an element for each rank
				}
				es, err := o.candidates(ctx, p, call)
				if err != nil {
					return nil, err
				}
				entries = append(entries, es...)
				if comm.Rank() == 0 {
					tell(coll, registered, es)
				}
			}
		}
		if err := p.free(); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// tell prints the fastest of what was measured of one call.
func tell(coll schedule.Collective, registered bool, es []tuner.Entry) {
	best := slices.MinFunc(es, func(a, b tuner.Entry) int { return cmp.Compare(a.Nanos, b.Nanos) })
	buffers := "ordinary"
	if registered {
		buffers = "registered"
	}
	fmt.Fprintf(os.Stderr, "%-14v %-10s %9s  %10s  %s, %d channels, chunks of %s\n", coll, buffers, sizeText(best.Bytes),
		timeText(time.Duration(best.Nanos)), best.Algorithm, best.Channels, sizeText(best.Chunk))
}

// hopeless is how many times slower than the best a candidate must be in its first call to be given up.
const hopeless = 10

// candidate is one that is being timed.
type candidate struct {
	tuner.Candidate
	prepared    *collective.Prepared
	first, best float64 // µs
}

// candidates times the candidates of one call, in turn, several rounds. Ranks agree on all times, so that
// they do the same.
func (o *tuneOptions) candidates(ctx context.Context, p *perf, call collective.Call) ([]tuner.Entry, error) {
	all, err := p.comm.Candidates(call)
	if err != nil {
		return nil, err
	}
	var list []candidate
	fastest := math.Inf(1)
	for _, c := range all {
		if c.Refused != "" {
			continue
		}
		x := candidate{Candidate: c}
		if x.prepared, err = p.comm.PrepareAs(call, c); err != nil {
			return nil, err
		}
		for range 2 { // the first one touches memory
			if x.first, err = p.batch(ctx, x.prepared.Run, 1); err != nil {
				return nil, fmt.Errorf("%v by %v: %w", call, c, err)
			}
		}
		x.best, fastest = x.first, min(fastest, x.first)
		list = append(list, x)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%v: no algorithm may serve it: %s", call, strings.Join(refusals(all), "; "))
	}
	for range o.Rounds {
		for i := range list {
			x := &list[i]
			if x.first > hopeless*fastest {
				continue
			}
			n := max(1, min(2000, int(float64(o.Budget.Microseconds())/x.best)))
			us, err := p.batch(ctx, x.prepared.Run, n)
			if err != nil {
				return nil, fmt.Errorf("%v by %v: %w", call, x.Candidate, err)
			}
			x.best = min(x.best, us)
		}
	}
	entries := make([]tuner.Entry, len(list))
	for i, x := range list {
		if entries[i], err = p.comm.TuningEntry(call, x.Candidate, int64(x.best*1e3)); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func refusals(cands []tuner.Candidate) (list []string) {
	for _, c := range cands {
		list = append(list, c.Algorithm+": "+c.Refused)
	}
	return list
}

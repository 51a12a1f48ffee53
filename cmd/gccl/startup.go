package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/internal/launch"
	"github.com/gccl/gccl/schedule/simulate"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// startupOptions are the flags of startup.
type startupOptions struct {
	ranks []int
	ways  []string
	plot  string
	rank  bool // this process is a rank that startup has started
}

// startupWay is something that startup measures.
type startupWay struct {
	name, help string
	run        func(ctx context.Context, n int) (time.Duration, error)
}

var startupWays = []startupWay{
	{"bootstrap", "goroutines form a group, each over TCP connections of its own", startBootstrap},
	{"goroutines", "goroutines make a communicator", startGoroutines},
	{"processes", "processes are started and make a communicator, until rank 0 has it", startProcesses},
}

func startupCommand() *cobra.Command {
	o := startupOptions{}
	cmd := &cobra.Command{
		Use:   "startup",
		Short: "Measure how long ranks on this host take to find each other",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Long = "Measures, for each number of ranks, the time in which\n"
	for _, w := range startupWays {
		cmd.Long += fmt.Sprintf("  %-11s %s\n", w.name, w.help)
	}
	cmd.Long += "Each is run once; let nothing else run meanwhile."
	f := cmd.Flags()
	f.IntSliceVarP(&o.ranks, "ranks", "n", []int{16, 64, 256, 1024}, "numbers of ranks")
	f.StringSliceVar(&o.ways, "ways", startupNames(), "what to measure")
	f.StringVar(&o.plot, "plot", "", "draw the times into this SVG file")
	f.BoolVar(&o.rank, "as-rank", false, "be a rank of a measurement")
	_ = f.MarkHidden("as-rank")
	return cmd
}

func (o *startupOptions) run(ctx context.Context, out io.Writer) error {
	if o.rank {
		c, err := connect(ctx, func(*collective.Config) {})
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Fprintln(out, "ready")
		}
		return c.Close()
	}
	ways, err := o.measured()
	if err != nil {
		return err
	}
	var curves []curve
	fmt.Fprintf(out, "# %-10s %8s %12s\n", "way", "ranks", "seconds")
	for _, w := range ways {
		c := curve{name: w.name}
		for _, n := range o.ranks {
			took, err := w.run(ctx, n)
			if err != nil {
				return fmt.Errorf("%s of %d ranks: %w", w.name, n, err)
			}
			fmt.Fprintf(out, "  %-10s %8d %12.3f\n", w.name, n, took.Seconds())
			c.points = append(c.points, simulate.Point{Bytes: n, Time: took})
		}
		curves = append(curves, c)
	}
	if o.plot == "" {
		return nil
	}
	f, err := os.Create(o.plot)
	if err != nil {
		return err
	}
	return errors.Join(drawSVG(f, "Time until ranks on one host have found each other", "ranks", curves), f.Close())
}

// measured lists what is measured, or refuses what cannot be.
func (o *startupOptions) measured() (ways []startupWay, err error) {
	for _, n := range o.ranks {
		if n < 1 {
			return nil, fmt.Errorf("--ranks %d: need at least one", n)
		}
	}
	for _, name := range o.ways {
		k := slices.IndexFunc(startupWays, func(w startupWay) bool { return w.name == name })
		if k < 0 {
			return nil, fmt.Errorf("--ways %s: no such way; there are %s", name, strings.Join(startupNames(), ", "))
		}
		ways = append(ways, startupWays[k])
	}
	return ways, nil
}

func startupNames() (names []string) {
	for _, w := range startupWays {
		names = append(names, w.name)
	}
	return names
}

func startBootstrap(ctx context.Context, n int) (time.Duration, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	groups := make([]bootstrap.Group, n)
	g, gctx := errgroup.WithContext(ctx)
	start := time.Now()
	for r := range n {
		g.Go(func() (err error) {
			cfg := bootstrap.Config{Rank: r, Size: n, LocalRank: r, LocalSize: n, Root: ln.Addr().String(), RunID: "startup", Secret: "startup"}
			if r == 0 {
				cfg.Listener = ln
			}
			groups[r], err = bootstrap.Connect(gctx, cfg)
			return err
		})
	}
	err = g.Wait()
	took := time.Since(start)
	var closing sync.WaitGroup
	for _, g := range groups {
		if g != nil {
			closing.Go(func() { _ = g.Close() })
		}
	}
	closing.Wait()
	return took, err
}

func startGoroutines(ctx context.Context, n int) (time.Duration, error) {
	start := time.Now()
	comms, err := collective.NewLocal(ctx, n, collective.Config{})
	took := time.Since(start)
	for _, c := range comms {
		err = errors.Join(err, c.Close())
	}
	return took, err
}

func startProcesses(ctx context.Context, n int) (time.Duration, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	seen := &readyAt{}
	j := launch.Job{Args: []string{exe, "startup", "--as-rank"}, Size: n, Stdout: seen}
	if err := j.Run(ctx); err != nil {
		return 0, err
	}
	if seen.at.IsZero() {
		return 0, errors.New("rank 0 said nothing")
	}
	return seen.at.Sub(start), nil
}

// readyAt notes when rank 0 is ready.
type readyAt struct{ at time.Time }

func (r *readyAt) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "ready") {
		r.at = time.Now()
	}
	return len(b), nil
}

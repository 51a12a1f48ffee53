package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/simulate"
	"github.com/spf13/cobra"
)

// simOptions are the flags of sim.
type simOptions struct {
	ranks, perHost, root, pieces, channels, slots, factor int
	segment                                               int
	collective, algo, bytes                               string
	alpha, localAlpha, overhead                           time.Duration
	beta, localBeta, gamma, host, network                 float64
	trace, plot                                           string
	most                                                  float64
}

func simCommand() *cobra.Command {
	o, m, compare := simOptions{}, simMeasure{}, false
	d := simulate.Default()
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Compare algorithms on a machine that is not there",
		Long: "Plays the schedules of all ranks with schedule/simulate and prints the time of each algorithm at each size,\n" +
			"the best one marked, and who wins where; ~ marks times that are extrapolated. Bandwidths are GB/s (10⁹\n" +
			"bytes), 0 means without limit.",
		Example: "  gccl sim --ranks 4096 --bytes 8-64M --algo 'ring|Double|HalvingDoubling' --plot out.svg\n" +
			"  gccl sim --ranks 65536 --hosts-size 8 --bytes 1K-16M --factor 4 --algo 'ring|Double|HalvingDoubling|TwoLevelHalving'\n" +
			"  gccl sim --ranks 64 --hosts-size 8 --host-bandwidth 24\n" +
			"  gccl sim --ranks 8 --algo TwoShot --bytes 1M --trace out.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"budget", "rounds"} {
				if !compare && cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s is for --measure", name)
				}
			}
			if m.Rounds < 1 || m.Budget <= 0 {
				return fmt.Errorf("--rounds %d --budget %v: need one round at least, and a time", m.Rounds, m.Budget)
			}
			if compare {
				return m.run(cmd.Context(), cmd.OutOrStdout())
			}
			return o.run(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.collective, "collective", "allreduce", "collective")
	f.IntVarP(&o.ranks, "ranks", "n", 8, "number of ranks")
	f.IntVar(&o.perHost, "hosts-size", 1, "ranks of a host")
	f.StringVarP(&o.bytes, "bytes", "b", "8-64M", "size, or range of sizes")
	f.IntVarP(&o.factor, "factor", "f", 2, "factor between the sizes of a range")
	f.StringVar(&o.algo, "algo", "", "algorithms to compare, in the names of GCCL_ALGO; default: all")
	f.IntVarP(&o.root, "root", "r", 0, "root rank")
	f.IntVar(&o.pieces, "pieces", 0, "pieces of a chunk, for trees and chains")
	f.IntVar(&o.channels, "channels", 1, "copies side by side")
	f.DurationVar(&o.alpha, "alpha", d.Net.Latency, "latency between hosts, with unit: 2µs")
	f.Float64Var(&o.beta, "beta", d.Net.Bandwidth/1e9, "bandwidth of a rank between hosts, GB/s")
	f.DurationVar(&o.localAlpha, "local-alpha", d.Local.Latency, "latency inside a host, with unit: 500ns")
	f.Float64Var(&o.localBeta, "local-beta", d.Local.Bandwidth/1e9, "bandwidth of a rank inside a host, GB/s")
	f.Float64Var(&o.gamma, "gamma", d.Reduce/1e9, "how fast a rank combines and copies, GB/s")
	f.Float64Var(&o.host, "host-bandwidth", 0, "bandwidth of a host's ports together, GB/s; 0: no limit")
	f.Float64Var(&o.network, "network-bandwidth", 0, "bandwidth of the whole network, GB/s; 0: no limit")
	f.DurationVar(&o.overhead, "overhead", d.Overhead, "work of a rank for each segment of a step, with unit: 200ns")
	f.Var(byteFlag(&o.segment, d.Segment), "segment", "longest segment")
	f.IntVar(&o.slots, "slots", d.Slots, "segments that a link holds")
	f.StringVar(&o.trace, "trace", "", "write what every lane does when to this file, for chrome://tracing or Perfetto; needs one size and one algorithm")
	f.StringVar(&o.plot, "plot", "", "draw time against size to this SVG file")
	f.Float64Var(&o.most, "max-steps", 30e6, "leave out algorithms of which more steps than this must be played at the largest size")
	f.BoolVar(&compare, "measure", false, "instead, print how far the simulator is off from two ranks on this host (docs/performance.md)")
	f.DurationVar(&m.Budget, "budget", 5*time.Millisecond, "with --measure: time of a call at one size in one round")
	f.IntVar(&m.Rounds, "rounds", 9, "with --measure: rounds")
	return cmd
}

// curve is what was found for an algorithm.
type curve struct {
	name   string
	points []simulate.Point
}

func (o *simOptions) run(out io.Writer) error {
	coll, err := collectiveNamed(o.collective)
	if err != nil {
		return fmt.Errorf("--collective: %w", err)
	}
	if coll.Rooted() && (o.root < 0 || o.root >= o.ranks) {
		return fmt.Errorf("-r %d: need a rank from 0 to %d", o.root, o.ranks-1)
	}
	lengths, err := o.lengths()
	if err != nil {
		return err
	}
	p, err := o.params()
	if err != nil {
		return err
	}
	infos, err := o.algorithms(coll)
	if err != nil {
		return err
	}
	shape := schedule.Shape{Root: o.root, Pieces: o.pieces}
	if o.perHost > 1 {
		shape.Hosts = p.Hosts
	}
	if o.trace != "" {
		return o.writeTrace(out, infos, lengths, shape, p)
	}
	var curves []curve
	var left omitted
	for i := range infos {
		in := &infos[i]
		if why := o.skip(in, shape, lengths[len(lengths)-1], &p); why != "" {
			left.add(in.Name, why)
			continue
		}
		points, err := simulate.Sweep(o.make(in), o.ranks, shape, lengths, p)
		if err != nil {
			left.add(in.Name, err.Error())
			continue
		}
		curves = append(curves, curve{in.Name, points})
	}
	if len(curves) == 0 {
		return fmt.Errorf("nothing to compare: %s", strings.Join(left.lines(), "; "))
	}
	o.table(out, coll, lengths, curves)
	for _, l := range left.lines() {
		fmt.Fprintln(out, "left out:", l)
	}
	if o.plot != "" {
		return o.draw(coll, curves)
	}
	return nil
}

// omitted is which algorithms are left out, by the reason.
type omitted struct {
	reasons []string
	names   map[string][]string
}

func (o *omitted) add(name, why string) {
	if o.names == nil {
		o.names = map[string][]string{}
	}
	if o.names[why] == nil {
		o.reasons = append(o.reasons, why)
	}
	o.names[why] = append(o.names[why], name)
}

func (o *omitted) lines() (list []string) {
	for _, why := range o.reasons {
		list = append(list, strings.Join(o.names[why], ", ")+": "+why)
	}
	return list
}

// make is the algorithm with its channels.
func (o *simOptions) make(in *schedule.Info) schedule.Algorithm {
	return func(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
		s, err := in.Make(rank, size, shape)
		if err == nil {
			s = schedule.Channels(s, o.channels)
		}
		return s, err
	}
}

// skip tells why an algorithm is left out: it cannot serve the size, or it would take too long to play.
// Most schedules for one rank a host are played for one rank only, some others for one host.
func (o *simOptions) skip(in *schedule.Info, shape schedule.Shape, bytes int, p *simulate.Params) string {
	if err := in.Supports(o.ranks, shape); err != nil {
		return err.Error()
	}
	if o.perHost == 1 && tuner.TwoLevel(in) {
		return "two levels are for hosts of several ranks (--hosts-size)"
	}
	s, err := o.make(in)(0, o.ranks, shape)
	if err != nil {
		return err.Error()
	}
	steps := 0
	for _, l := range s.Lanes {
		steps += len(l)
	}
	segments := 1 + float64(bytes)/float64(max(1, s.In, s.Out))/float64(p.Segment)
	all := float64(o.ranks) * float64(steps) * segments
	if all > o.most { // unless few ranks stand for all
		played, err := simulate.Played(o.make(in), o.ranks, shape, *p)
		if err != nil {
			return err.Error()
		}
		all *= float64(played) / float64(o.ranks)
	}
	if all > o.most {
		return fmt.Sprintf("%.3g million steps, --max-steps is %.3g million", all/1e6, o.most/1e6)
	}
	return ""
}

// lengths reads --bytes.
func (o *simOptions) lengths() ([]int, error) {
	from, to, ranged := strings.Cut(o.bytes, "-")
	if !ranged {
		to = from
	}
	if o.factor < 2 {
		return nil, fmt.Errorf("--factor %d: need 2 or more", o.factor)
	}
	var a, b byteSize
	if err := errors.Join(a.Set(from), b.Set(to)); err != nil {
		return nil, fmt.Errorf("--bytes %s: need a size, or from-to: %s", o.bytes, oneLine(err))
	}
	list := simulate.Lengths(int(a), int(b), o.factor)
	if len(list) == 0 {
		return nil, fmt.Errorf("--bytes %s: need a size, or from-to", o.bytes)
	}
	return list, nil
}

func (o *simOptions) params() (simulate.Params, error) {
	for _, f := range []struct {
		name  string
		value int
	}{{"-n", o.ranks}, {"--hosts-size", o.perHost}, {"--channels", o.channels}, {"--slots", o.slots}, {"--segment", o.segment}} {
		if f.value < 1 {
			return simulate.Params{}, fmt.Errorf("%s %d: need at least one", f.name, f.value)
		}
	}
	if min(o.alpha, o.localAlpha, o.overhead) < 0 || min(o.beta, o.localBeta, o.gamma, o.host, o.network) < 0 {
		return simulate.Params{}, errors.New("times and bandwidths cannot be negative")
	}
	p := simulate.Params{
		Local:         simulate.Path{Latency: o.localAlpha, Bandwidth: o.localBeta * 1e9},
		Net:           simulate.Path{Latency: o.alpha, Bandwidth: o.beta * 1e9},
		HostBandwidth: o.host * 1e9, SwitchBandwidth: o.network * 1e9,
		Reduce: o.gamma * 1e9, Copy: o.gamma * 1e9,
		Overhead: o.overhead, Segment: o.segment, Slots: o.slots,
	}
	if o.perHost > 1 {
		p.Hosts = make([]int, o.ranks)
		for r := range p.Hosts {
			p.Hosts[r] = r / o.perHost
		}
	}
	return p, nil
}

// twoLevelHalving composes two levels with recursive halving across hosts. Unlike the catalog's, whose circulant
// part takes another turn on every host, all hosts do the same in it if they are a power of two, so that
// one is played for all.
func twoLevelHalving() schedule.Info {
	catalog := collective.Catalog()
	in := catalog[slices.IndexFunc(catalog, func(in schedule.Info) bool { return in.Name == "direct.AllReduceTwoLevel" })]
	in.Name = "direct.AllReduceTwoLevelHalving"
	in.Make = direct.AllReduceTwoLevel(direct.ReduceScatterDirect, direct.AllReduceHalvingDoubling, direct.AllGatherDirect)
	return in
}

// algorithms are those of the collective that --algo allows.
func (o *simOptions) algorithms(coll schedule.Collective) ([]schedule.Info, error) {
	catalog := append(collective.Catalog(), twoLevelHalving())
	text := ""
	if o.algo != "" {
		text = coll.String() + ":" + o.algo
	}
	rules, err := tuner.ParseRules(text, catalog)
	if err != nil {
		return nil, fmt.Errorf("--algo: %w", err)
	}
	var list []schedule.Info
	for i := range catalog {
		if catalog[i].Collective == coll && rules.Allows(i, coll, 0) {
			list = append(list, catalog[i])
		}
	}
	return list, nil
}

// table prints times and crossovers.
func (o *simOptions) table(out io.Writer, coll schedule.Collective, lengths []int, curves []curve) {
	fmt.Fprintf(out, "%v, %d ranks, %d a host: µs\n", coll, o.ranks, o.perHost)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "size\t")
	names, sweeps := make([]string, len(curves)), make([][]simulate.Point, len(curves))
	for i, c := range curves {
		fmt.Fprintf(w, "%s\t", c.name)
		names[i], sweeps[i] = c.name, c.points
	}
	fmt.Fprintln(w)
	taken := false
	for k, n := range lengths {
		best := 0
		for i := range curves {
			if sweeps[i][k].Time < sweeps[best][k].Time {
				best = i
			}
		}
		fmt.Fprintf(w, "%s\t", sizeText(n))
		for i := range curves {
			mark, about := " ", ""
			if i == best {
				mark = "*"
			}
			if sweeps[i][k].Extrapolated {
				about, taken = "~", true
			}
			fmt.Fprintf(w, "%s%s%s\t", about, micros(float64(sweeps[i][k].Time.Nanoseconds())/1e3), mark)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	if taken {
		fmt.Fprintln(out, "~: fewer segments were played, and the time taken on in a straight line")
	}
	for _, r := range simulate.Crossovers(names, sweeps) {
		fmt.Fprintf(out, "%s to %s: %s\n", sizeText(r.From), sizeText(r.To), r.Name)
	}
}

func (o *simOptions) writeTrace(out io.Writer, infos []schedule.Info, lengths []int, shape schedule.Shape, p simulate.Params) error {
	if len(infos) != 1 || len(lengths) != 1 {
		return fmt.Errorf("--trace needs one algorithm (--algo) and one size (--bytes); there are %d and %d", len(infos), len(lengths))
	}
	var tr simulate.Trace
	res, err := simulate.Run(o.make(&infos[0]), o.ranks, shape, lengths[0], p, &tr)
	if err != nil {
		return err
	}
	f, err := os.Create(o.trace)
	if err != nil {
		return err
	}
	if err := errors.Join(tr.WriteChrome(f), f.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s, %d ranks, %d bytes: %s, %d windows, %d segments; trace in %s\n",
		infos[0].Name, o.ranks, lengths[0], timeText(res.Time), res.Windows, res.Segments, o.trace)
	return err
}

func (o *simOptions) draw(coll schedule.Collective, curves []curve) error {
	f, err := os.Create(o.plot)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%v, %d ranks, %d a host (simulated)", coll, o.ranks, o.perHost)
	return errors.Join(drawSVG(f, title, "bytes", curves), f.Close())
}

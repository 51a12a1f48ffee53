package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/spf13/cobra"
)

// planOptions are the flags of plan.
type planOptions struct {
	ranks, rank, root, pieces, channels, load int
	bytes                                     int
	algo, hosts, local, net                   string
	prove, explain, registered                bool
}

// mostRanks is the size of the largest job that package bootstrap takes.
const mostRanks = 1 << 20

func planCommand() *cobra.Command {
	o := planOptions{}
	cmd := &cobra.Command{
		Use:   "plan COLLECTIVE",
		Short: "Show, prove or explain how a collective is made",
		Long: "Prints the schedule of a rank in the text form of docs/schedules.md: of the algorithm given by --algo, or of\n" +
			"the one that a communicator would choose for --bytes. --prove checks it for all ranks with\n" +
			"schedule/verify and prints the report. --explain prints every algorithm of the collective with the time that\n" +
			"the model predicts, the time in the tuning file (GCCL_TUNING_FILE) if there is one, and why one won.\n" +
			"Settings in the environment count, as for a communicator.",
		Example: "  gccl plan allreduce -n 4 --explain -b 64K\n  gccl plan allreduce -n 8 --hosts 4,4 --algo TwoLevel --rank -1\n" +
			"  gccl plan broadcast -n 6 --algo tree --prove",
		Args: oneOf(collectiveNames()),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0]) },
	}
	f := cmd.Flags()
	f.IntVarP(&o.ranks, "ranks", "n", 2, "number of ranks")
	f.StringVar(&o.algo, "algo", "", "algorithm, in the names of GCCL_ALGO")
	f.IntVar(&o.rank, "rank", 0, "rank whose schedule to print; -1: all")
	f.IntVarP(&o.root, "root", "r", 0, "root rank")
	f.IntVar(&o.pieces, "pieces", 0, "pieces of a chunk, for trees and chains")
	f.IntVar(&o.channels, "channels", 0, "copies side by side; 0: as chosen, or 1 with --algo")
	f.StringVar(&o.hosts, "hosts", "", "ranks on each host, such as 2,2; default: all on one")
	f.VarP(byteFlag(&o.bytes, 1<<20), "bytes", "b", "size of the call: of the longer of a rank's buffers")
	f.BoolVarP(&o.registered, "registered", "R", false, "buffers are from Comm.Alloc")
	f.StringVar(&o.local, "local", "shm", "provider inside hosts, for the choice")
	f.StringVar(&o.net, "net", "tcp", "provider between hosts, for the choice")
	f.IntVar(&o.load, "load", 1, "ranks that share a core, for the choice")
	f.BoolVar(&o.prove, "prove", false, "prove it instead of printing it")
	f.BoolVar(&o.explain, "explain", false, "print the candidates instead")
	return cmd
}

func (o *planOptions) run(out io.Writer, name string) error {
	coll, err := collectiveNamed(name)
	if err != nil {
		return err
	}
	switch {
	case o.ranks < 1:
		return fmt.Errorf("-n %d: need at least one rank", o.ranks)
	case o.ranks > mostRanks:
		return fmt.Errorf("-n %d: at most %d ranks", o.ranks, mostRanks)
	case o.rank < -1 || o.rank >= o.ranks:
		return fmt.Errorf("--rank %d: need a rank from 0 to %d, or -1 for all", o.rank, o.ranks-1)
	case coll.Rooted() && (o.root < 0 || o.root >= o.ranks):
		return fmt.Errorf("-r %d: need a rank from 0 to %d", o.root, o.ranks-1)
	case o.channels < 0 || o.pieces < 0:
		return fmt.Errorf("--channels %d --pieces %d: cannot be negative", o.channels, o.pieces)
	case o.load < 1:
		return fmt.Errorf("--load %d: need at least one rank a core", o.load)
	}
	hosts, err := parseHosts(o.hosts, o.ranks)
	if err != nil {
		return err
	}
	t, err := o.tuner(coll, hosts)
	if err != nil {
		return err
	}
	q := tuner.Query{Collective: coll, Bytes: o.bytes, Registered: o.registered, InPlace: coll != schedule.AllToAll}
	if o.explain {
		return o.candidates(out, t, q)
	}
	ch, err := t.Choose(q)
	if err != nil {
		return err
	}
	info := collective.Catalog()[ch.Index]
	shape := schedule.Shape{Root: o.root, Pieces: o.pieces, Hosts: hosts}
	channels := ch.Channels
	if o.algo != "" {
		channels = 1
	}
	if o.channels > 0 {
		channels = o.channels
	}
	if o.prove {
		return prove(out, &info, o.ranks, shape, channels)
	}
	return o.schedules(out, &info, shape, channels)
}

// schedules prints the schedule of the rank that is asked for, or of all.
func (o *planOptions) schedules(out io.Writer, info *schedule.Info, shape schedule.Shape, channels int) error {
	from, to := o.rank, o.rank+1
	if o.rank < 0 {
		from, to = 0, o.ranks
	}
	text := fmt.Sprintf("# %s%s: %s\n", info.Name, sideBySide(channels), info.Formula)
	for r := from; r < to; r++ {
		s, err := info.Make(r, o.ranks, shape)
		if err != nil {
			return err
		}
		text += fmt.Sprint(schedule.Channels(s, channels))
	}
	_, err := io.WriteString(out, text)
	return err
}

// tuner is what a communicator of the environment's settings would choose by; --algo takes the place
// of GCCL_ALGO.
func (o *planOptions) tuner(coll schedule.Collective, hosts []int) (*tuner.Tuner, error) {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if o.algo != "" {
		cfg.Algo = coll.String() + ":" + o.algo
	}
	return collective.TunerFor(cfg, tuner.Config{Size: o.ranks, Hosts: hosts, Local: o.local, Net: o.net, Load: o.load})
}

// parseHosts reads "2,2" into the host of each rank, or nil for one host.
func parseHosts(text string, size int) (hosts []int, err error) {
	if text == "" {
		return nil, nil
	}
	for h, s := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || len(hosts)+n > size {
			return nil, fmt.Errorf("--hosts %s: need numbers of ranks that add up to %d", text, size)
		}
		for range n {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) != size {
		return nil, fmt.Errorf("--hosts %s: %d ranks, not %d", text, len(hosts), size)
	}
	if hosts[size-1] == 0 {
		return nil, nil
	}
	return hosts, nil
}

// prove verifies an algorithm over links of several lengths and prints what is true of it.
func prove(out io.Writer, info *schedule.Info, size int, shape schedule.Shape, channels int) error {
	s, err := info.Make(0, size, shape)
	if err != nil {
		return err
	}
	var links []verify.Links
	for _, slots := range []int{1, 2, 4, 8} {
		for _, segments := range []int{1, 2, 3, 7} {
			if segments <= s.MaxSegments(slots) {
				links = append(links, verify.Links{Slots: slots, Segments: segments})
			}
		}
	}
	rep, err := verify.Check(info.Make, info.Collective, size, shape, verify.Options{Channels: channels, Links: links})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, v any) { fmt.Fprintf(w, "%s\t%v\n", name, v) }
	fmt.Fprintf(w, "%s of %d ranks%s: proved\n", info.Name, size, sideBySide(channels))
	row("every contribution", "exactly once, in the right chunk, finished once")
	text := ""
	for _, l := range links {
		text += fmt.Sprintf(" %d/%d", l.Slots, l.Segments)
	}
	row("no deadlock with slots/segments", strings.TrimSpace(text))
	row("no race", "over two windows, out of place"+map[bool]string{true: "", false: " and in place"}[s.Disjoint])
	row("messages on the longest chain", rep.Steps)
	row("chunks of a buffer", rep.Chunks)
	row("sent by the busiest rank", fmt.Sprintf("%d chunks", rep.Sent))
	row("combined by the busiest rank", fmt.Sprintf("%d chunks", rep.Reduced))
	row("lanes, scratch chunks", fmt.Sprintf("%d, %d", rep.Lanes, rep.Scratch))
	row("⊕ on the longest path", rep.Depth)
	row("ordered, canonical, uneven", fmt.Sprintf("%v, %v, %v", rep.Ordered, rep.Canonical, rep.Uneven))
	row("early, lazy", fmt.Sprintf("%v, %v", rep.Early, rep.Lazy))
	return w.Flush()
}

// sideBySide tells how many channels there are, if several.
func sideBySide(channels int) string {
	if channels < 2 {
		return ""
	}
	return fmt.Sprintf(", %d channels", channels)
}

// candidates prints the table of --explain.
func (o *planOptions) candidates(out io.Writer, t *tuner.Tuner, q tuner.Query) error {
	cands, why := t.Explain(q)
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%v of %d bytes, %d ranks\n", q.Collective, q.Bytes, o.ranks)
	fmt.Fprintln(w, "\tALGORITHM\tCHANNELS\tCHUNK\tPREDICTED\tMEASURED\t")
	for i, c := range cands {
		if c.Refused != "" {
			fmt.Fprintf(w, "\t%s\t-\t-\t-\t-\tno: %s\n", c.Algorithm, c.Refused)
			continue
		}
		mark, note, chunk, measured := "", "", "all", "-"
		if i == 0 {
			mark, note = "*", why
		}
		if c.Chunk > 0 {
			chunk = sizeText(c.Chunk)
		}
		if c.Measured > 0 {
			measured = timeText(c.Measured)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", mark, c.Algorithm, c.Channels, chunk, timeText(c.Predicted), measured, note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// sizeText is a number of bytes with K, M or G where that is exact.
func sizeText(n int) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if n > 0 && n%(1<<u.shift) == 0 {
			return strconv.Itoa(n>>u.shift) + u.name
		}
	}
	return strconv.Itoa(n)
}

// timeText is a time in µs.
func timeText(d time.Duration) string { return micros(float64(d.Nanoseconds())/1e3) + " µs" }

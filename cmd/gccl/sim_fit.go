package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/simulate"
)

// regime is what a rank's core moves while its user buffers take up so many bytes together: seconds a byte.
type regime struct {
	set             float64 // bytes of In and Out
	both, slower    float64 // putting and taking together; the slower of them
	reduce, copying float64 // combining, beyond taking; a local copy
}

// fitted is the model: a latency, and the regimes by rising set.
type fitted struct {
	alpha   float64 // seconds
	regimes []regime
	pick    picker
}

// picker names and makes the algorithm that a communicator of two ranks here chooses.
type picker func(coll schedule.Collective, bytes int) (string, schedule.Algorithm, error)

// fit solves for the parameters. α is half the round trip of 8 bytes, copying that of local copies. The others
// are what makes the simulator give the times measured: putting and taking together of AllGather, where both ranks
// do both; the slower one of Scatter, where they overlap; combining of ReduceScatter.
func fit(pick picker, cells []*cell) (*fitted, error) {
	f := &fitted{alpha: cellOf(cells, "pingpong", 8).time(), pick: pick}
	empty := cellOf(cells, "copy", 8).time()
	for n := fitLeast; n <= fitMost; n *= 2 {
		bytes := n * 3 / 4
		f.regimes = append(f.regimes, regime{set: float64(n) * 3 / 2, copying: max(0, cellOf(cells, "copy", bytes).time()-empty) / float64(bytes)})
		r := &f.regimes[len(f.regimes)-1]
		steps := []struct {
			coll   schedule.Collective
			lo, hi func() float64
			set    func(perByte float64)
		}{
			{schedule.AllGather, zero, func() float64 { return 1e-8 }, func(v float64) { r.both, r.slower = v, v/2 }},
			{schedule.Scatter, func() float64 { return r.both / 2 }, func() float64 { return r.both }, func(v float64) { r.slower = v }},
			{schedule.ReduceScatter, zero, func() float64 { return 1e-8 }, func(v float64) { r.reduce = v }},
		}
		for _, step := range steps {
			want := cellOf(cells, step.coll.String(), n).time()
			lo, hi := step.lo(), step.hi()
			for range 30 {
				v := (lo + hi) / 2
				step.set(v)
				_, t, err := f.predict(step.coll, n)
				if err != nil {
					return nil, err
				}
				if t < want {
					lo = v
				} else {
					hi = v
				}
			}
		}
	}
	return f, nil
}

func zero() float64 { return 0 }

// at is the regime of a set, between the two that were measured next to it; beyond them, that of the last one.
func (f *fitted) at(set float64) regime {
	list := f.regimes
	i, _ := slices.BinarySearchFunc(list, set, func(r regime, set float64) int { return cmp.Compare(r.set, set) })
	switch {
	case i == 0:
		return list[0]
	case i == len(list):
		return list[i-1]
	}
	a, b := list[i-1], list[i]
	w := math.Log(set/a.set) / math.Log(b.set/a.set)
	mix := func(x, y float64) float64 { return x + w*(y-x) }
	return regime{set, mix(a.both, b.both), mix(a.slower, b.slower), mix(a.reduce, b.reduce), mix(a.copying, b.copying)}
}

// params is the machine of the simulator at a set. Nothing but the cores moves data. Which of putting and
// taking is the slower one cannot be seen from outside; it is said to be taking.
func (f *fitted) params(set float64) simulate.Params {
	r := f.at(set)
	rate := func(perByte float64) float64 {
		if perByte < 1e-13 { // nothing that could be measured
			return 0
		}
		return 1 / perByte
	}
	p := simulate.Default()
	p.Hosts, p.Overhead = make([]int, measuredRanks), 0
	p.Local = simulate.Path{
		Latency: time.Duration(f.alpha * 1e9), Put: rate(r.both - r.slower), Take: rate(r.slower),
	}
	p.Reduce, p.Copy = rate(r.reduce), rate(r.copying)
	return p
}

// printErrors prints the parameters, and what was measured and simulated.
func printErrors(out io.Writer, pick picker, cells []*cell) error {
	f, err := fit(pick, cells)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "α %.0f ns; GB/s by the bytes of In and Out on a rank:\n\n", f.alpha*1e9)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	row := func(cells ...string) {
		fmt.Fprint(w, "\t")
		for _, c := range cells {
			fmt.Fprint(w, c, "\t")
		}
		fmt.Fprintln(w)
	}
	rate := func(bandwidth float64) string {
		if bandwidth == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", bandwidth/1e9)
	}
	row("In + Out", "put", "take", "combine", "copy")
	row("---:", "---:", "---:", "---:", "---:")
	for _, r := range f.regimes {
		m := f.params(r.set)
		row(sizeText(int(r.set)), rate(m.Local.Put), rate(m.Local.Take), rate(m.Reduce), rate(m.Copy))
	}
	_ = w.Flush()
	fmt.Fprintln(out)
	row("collective", "size", "algorithm", "measured µs", "simulated µs", "error")
	row("---", "---:", "---", "---:", "---:", "---:")
	var errs []float64
	for _, coll := range comparedCollectives {
		for _, n := range comparedSizes() {
			name, t, err := f.predict(coll, n)
			if err != nil {
				return err
			}
			measured := cellOf(cells, coll.String(), n).time()
			e := 100 * (t/measured - 1)
			errs = append(errs, math.Abs(e))
			row(coll.String(), sizeText(n), name, micros(measured*1e6), micros(t*1e6), fmt.Sprintf("%+.0f %%", e))
		}
	}
	_ = w.Flush()
	sum, within := 0.0, 0
	for _, e := range errs {
		sum += e
		if math.Round(e) <= 15 {
			within++
		}
	}
	_, err = fmt.Fprintf(out, "\n%d of %d within 15 %%; mean error %.0f %%, largest %.0f %%\n", within, len(errs), sum/float64(len(errs)), slices.Max(errs))
	return err
}

// predict simulates the algorithm that is chosen, and names it.
func (f *fitted) predict(coll schedule.Collective, bytes int) (string, float64, error) {
	name, alg, err := f.pick(coll, bytes)
	if err != nil {
		return "", 0, err
	}
	per, set := bytes/max(coll.InBlocks(measuredRanks), coll.OutBlocks(measuredRanks)), 0
	for r := range measuredRanks {
		in, out := coll.Blocks(r, measuredRanks, 0)
		set = max(set, (in+out)*per)
	}
	res, err := simulate.Run(alg, measuredRanks, schedule.Shape{}, bytes, f.params(float64(set)), nil)
	return name, res.Time.Seconds(), err
}

// chosen is the picker of a communicator.
func chosen(p *perf) picker {
	catalog := collective.Catalog()
	return func(coll schedule.Collective, bytes int) (string, schedule.Algorithm, error) {
		info, err := p.comm.Plan(p.callFor(coll, bytes, 0))
		if err != nil {
			return "", nil, err
		}
		i := slices.IndexFunc(catalog, func(in schedule.Info) bool { return in.Name == info.Algorithm })
		if i < 0 {
			return "", nil, fmt.Errorf("%s is not in the catalog", info.Algorithm)
		}
		o := simOptions{channels: info.Channels}
		return info.Algorithm, o.make(&catalog[i]), nil
	}
}

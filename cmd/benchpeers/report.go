package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	begin = "<!-- measured: begin -->\n"
	end   = "<!-- measured: end -->\n"
)

// writeReport replaces the measured part of docs/performance.md and draws docs/performance.svg.
func writeReport(raw, docs string) error {
	f, err := os.Open(raw)
	if err != nil {
		return err
	}
	m, err := read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", raw, err)
	}
	path := filepath.Join(docs, "performance.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err = replace(page, report(m))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, page, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "performance.svg"), plot(compare(m.rows, m.machine.Foreign)), 0o644)
}

// replace puts text between the two marks.
func replace(page, text []byte) ([]byte, error) {
	head, rest, ok := bytes.Cut(page, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, fmt.Errorf("lacks the lines %q and %q", begin, end)
	}
	return slices.Concat(head, []byte(begin), text, []byte(end), tail), nil
}

// report is the measured part of the page.
func report(m *measurements) []byte {
	var w bytes.Buffer
	cs := compare(m.rows, m.machine.Foreign)
	head(&w, m)
	means(&w, cs)
	worst(&w, cs)
	table(&w, cs)
	reached(&w, cs, m)
	times(&w, cs)
	troubles(&w, m)
	return w.Bytes()
}

func head(w io.Writer, m *measurements) {
	x := m.machine
	l3 := "size unknown"
	if x.L3 > 0 {
		l3 = size(x.L3)
	}
	fmt.Fprintf(w, "\nMeasured on %s: %s, %d cores, L3 cache %s, memory %s; %s, Linux %s, %s; transparent huge pages %s. ",
		x.Date, x.CPU, x.Cores, l3, size(x.Memory), x.System, x.Kernel, x.Go, x.THP)
	fmt.Fprintf(w, "Peers: %s. Pages under gccl's slices: %s, under `Alloc`: %s; the peers' the same.\n\n", strings.Join(x.Peers, ", "), x.Slices, x.Alloc)
	places := map[string]int{}
	noisy, n := 0, 0
	for _, r := range m.rows {
		if r.Failed != "" {
			continue
		}
		n++
		places[r.Place]++
		if r.Foreign > x.Foreign {
			noisy++
		}
	}
	var text []string
	for _, p := range placements {
		if places[p] > 0 {
			text = append(text, fmt.Sprintf("%s %d", p, places[p]))
		}
	}
	fmt.Fprintf(w, "%d measurements in %d rounds, %s for the calls of each; disturbed (others used more than %.0f %% of the CPUs) %d. Placement: %s.\n\n",
		n, x.Rounds, x.Budget, 100*x.Foreign, noisy, strings.Join(text, ", "))
	limits(w, m.bounds)
}

// limits is the table of what the machine permits.
func limits(w io.Writer, bounds []bound) {
	if len(bounds) == 0 {
		fmt.Fprint(w, "The machine's bounds were not measured: it was too busy.\n\n")
		return
	}
	fmt.Fprint(w, "What the machine permits (medians):\n\n| | one core | two cores |\n|---|---:|---:|\n")
	for _, name := range []string{"read", "write", "copy", "flag, one line", "flag, two lines"} {
		show := func(cores int) string {
			var values []float64
			unit := ""
			for _, b := range bounds {
				if b.Name == name && b.Cores == cores {
					values, unit = append(values, b.Value), b.Unit
				}
			}
			if values == nil {
				return ""
			}
			return fmt.Sprintf("%.3g %s", median(values), unit)
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, show(1), show(2))
	}
	fmt.Fprintln(w)
}

// group is the cells of one line of a table.
type group struct {
	name    string
	ranks   int
	variant int
}

func groups(cs []comparison) (order []group, of map[group][]comparison) {
	of = map[group][]comparison{}
	for _, c := range cs {
		g := group{c.name(), c.ranks, c.variant}
		if of[g] == nil {
			order = append(order, g)
		}
		of[g] = append(of[g], c)
	}
	return order, of
}

func ratios(cs []comparison) []float64 {
	var v []float64
	for _, c := range cs {
		v = append(v, c.ratio)
	}
	return v
}

// means is the table of geometric means.
func means(w io.Writer, cs []comparison) {
	fmt.Fprint(w, "### Geometric means\n\nBest peer's time ÷ gccl's, over the sizes; in brackets the least.\n\n| collective |")
	_, of := groups(cs)
	ranks := map[int]bool{}
	var names []string
	for _, c := range cs {
		ranks[c.ranks] = true
		if !slices.Contains(names, c.name()) {
			names = append(names, c.name())
		}
	}
	ns := slices.Sorted(maps.Keys(ranks))
	for _, v := range variants {
		for _, n := range ns {
			fmt.Fprintf(w, " %d ranks, %s |", n, v.buffers)
		}
	}
	fmt.Fprint(w, "\n|---|"+strings.Repeat("---:|", len(variants)*len(ns))+"\n")
	lineOf := func(name string, pick func(g group) bool) {
		fmt.Fprintf(w, "| %s |", name)
		for i := range variants {
			for _, n := range ns {
				var v []float64
				for g, c := range of {
					if g.variant == i && g.ranks == n && pick(g) {
						v = append(v, ratios(c)...)
					}
				}
				if v == nil {
					fmt.Fprint(w, " |")
					continue
				}
				fmt.Fprintf(w, " %.2f (%.2f) |", geomean(v), slices.Min(v))
			}
		}
		fmt.Fprintln(w)
	}
	for _, name := range names {
		lineOf(name, func(g group) bool { return g.name == name })
	}
	lineOf("**all**", func(group) bool { return true })
	fmt.Fprintln(w)
}

// worst names the least ratio and every cell in which a peer is faster.
func worst(w io.Writer, cs []comparison) {
	fmt.Fprint(w, "### Where a peer is faster\n\n")
	if len(cs) == 0 {
		fmt.Fprint(w, "Nothing was compared.\n\n")
		return
	}
	least := slices.MinFunc(cs, func(a, b comparison) int {
		if a.ratio < b.ratio {
			return -1
		}
		return 1
	})
	below := slices.DeleteFunc(slices.Clone(cs), func(c comparison) bool { return c.ratio >= 1 })
	fmt.Fprintf(w, "%d of %d cells. The least ratio is %.2f: %s.\n\n", len(below), len(cs), least.ratio, where(least))
	for _, c := range below {
		fmt.Fprintf(w, "- %.2f %s: %s µs, %s %s µs%s\n", c.ratio, where(c), micros(c.ours), c.peer, micros(c.theirs), noise(c))
	}
	if len(below) > 0 {
		fmt.Fprintln(w)
	}
}

func where(c comparison) string {
	return fmt.Sprintf("%s, %d ranks, %s, %s", c.name(), c.ranks, size(c.bytes), variants[c.variant].buffers)
}

func noise(c comparison) string {
	if c.noisy {
		return " (disturbed)"
	}
	return ""
}

// table is the table of all ratios, each with the best peer's name.
func table(w io.Writer, cs []comparison) {
	fmt.Fprint(w, "### Ratios\n\nBest peer's median ÷ gccl's median, and which peer that was. ? marks cells without an undisturbed measurement.\n\n")
	grid(w, cs, func(c comparison) string {
		mark := ""
		if c.noisy {
			mark = "?"
		}
		return fmt.Sprintf("%.2f%s %s", c.ratio, mark, c.peer)
	})
}

// times is the table of gccl's and the best peer's medians.
func times(w io.Writer, cs []comparison) {
	fmt.Fprint(w, "### Times\n\ngccl's median / best peer's median, µs.\n\n")
	grid(w, cs, func(c comparison) string { return micros(c.ours) + " / " + micros(c.theirs) })
}

// grid has a line for every collective, number of ranks and kind of buffers, and a column for every size.
func grid(w io.Writer, cs []comparison, text func(comparison) string) {
	all := map[int]bool{}
	for _, c := range cs {
		all[c.bytes] = true
	}
	sizes := slices.Sorted(maps.Keys(all))
	fmt.Fprint(w, "| collective | ranks | buffers |")
	for _, s := range sizes {
		fmt.Fprintf(w, " %s |", size(s))
	}
	fmt.Fprint(w, "\n|---|---:|---|"+strings.Repeat("---|", len(sizes))+"\n")
	order, of := groups(cs)
	for _, g := range order {
		fmt.Fprintf(w, "| %s | %d | %s |", g.name, g.ranks, variants[g.variant].buffers)
		for _, s := range sizes {
			i := slices.IndexFunc(of[g], func(c comparison) bool { return c.bytes == s })
			if i < 0 {
				fmt.Fprint(w, " |")
				continue
			}
			fmt.Fprintf(w, " %s |", text(of[g][i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// reached sets gccl's times against the bounds.
func reached(w io.Writer, cs []comparison, m *measurements) {
	var rows bytes.Buffer
	for _, c := range cs {
		if c.variant > 1 {
			continue // TCP has other bounds
		}
		if t := permitted(c.cell, m.bounds, m.machine.L3); t > 0 {
			fmt.Fprintf(&rows, "| %s | %d | %s | %s | %s | %s | %.0f %% |\n", c.name(), c.ranks, size(c.bytes), variants[c.variant].buffers, micros(c.ours), micros(t), 100*t/c.ours)
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprint(w, "### Against the bounds\n\n| collective | ranks | size | buffers | gccl µs | permitted µs | reached |\n|---|---:|---:|---|---:|---:|---:|\n")
	fmt.Fprintf(w, "%s\n", rows.Bytes())
}

// troubles lists what failed or was wrong.
func troubles(w io.Writer, m *measurements) {
	counts := map[string]int{}
	for _, r := range m.rows {
		switch {
		case r.Failed != "":
			counts[fmt.Sprintf("%s, %s, %d ranks: %s", r.Config, r.Coll, r.Ranks, firstLine(r.Failed))]++
		case r.Wrong > 0:
			counts[fmt.Sprintf("%s, %s, %d ranks, %s: wrong elements", r.Config, r.Coll, r.Ranks, size(r.Bytes))]++
		}
	}
	if len(counts) == 0 {
		fmt.Fprint(w, "No launch failed; no element was wrong.\n")
		return
	}
	fmt.Fprint(w, "### Failures\n\n")
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "- %s (%d times)\n", k, counts[k])
	}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// size writes bytes in binary units; 0 is a barrier's.
func size(n int) string {
	switch {
	case n == 0:
		return "–"
	case n >= 1<<30:
		return fmt.Sprintf("%.3g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// micros keeps three significant digits, or all before the point.
func micros(us float64) string {
	switch {
	case us >= 100:
		return fmt.Sprintf("%.0f", us)
	case us >= 10:
		return fmt.Sprintf("%.1f", us)
	case us >= 1:
		return fmt.Sprintf("%.2f", us)
	}
	return fmt.Sprintf("%.3f", us)
}

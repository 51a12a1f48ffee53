package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// cell is what is compared: a collective, in place or not, on so many ranks with so many bytes.
type cell struct {
	coll    string
	inPlace bool
	ranks   int
	bytes   int
}

func (c cell) name() string {
	if c.inPlace {
		return c.coll + ", in place"
	}
	return c.coll
}

func compareCells(a, b cell) int {
	place := func(c cell) int {
		if c.inPlace {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(place(a), place(b)),
		cmp.Compare(slices.Index(collectives, a.coll), slices.Index(collectives, b.coll)),
		cmp.Compare(a.ranks, b.ranks), cmp.Compare(a.bytes, b.bytes))
}

// variants are the ways in which gccl is measured: the configuration, and the words of the report.
var variants = []struct{ config, buffers string }{{"gccl", "slices"}, {"gccl-alloc", "Alloc"}, {"gccl-tcp", "slices, TCP"}}

// comparison is one cell of one variant against its best peer.
type comparison struct {
	cell
	variant int
	ours    float64 // µs, median
	peer    string
	theirs  float64
	ratio   float64 // theirs / ours: above 1, gccl is faster
	noisy   bool    // one of the two has no undisturbed measurement
}

// median of at least one value.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// geomean of at least one positive value.
func geomean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(v)))
}

// placements in the order of preference where several were seen equally often.
var placements = []string{"near", "far", "smt", "none", "mixed", "unknown"}

// usual is the most frequent placement of some rows.
func usual(rows []row) string {
	n := map[string]int{}
	for _, r := range rows {
		n[r.Place]++
	}
	best := ""
	for _, p := range placements {
		if n[p] > n[best] {
			best = p
		}
	}
	return best
}

// typical is a configuration's median: over its undisturbed rows in the placement at, as far as there
// are any.
func typical(rows []row, at string, maxForeign float64) (us float64, noisy bool) {
	rows, clean := prefer(rows, func(r row) bool { return r.Foreign <= maxForeign })
	rows, _ = prefer(rows, func(r row) bool { return r.Place == at })
	var v []float64
	for _, r := range rows {
		v = append(v, r.Time)
	}
	return median(v), !clean
}

// prefer keeps the rows that are good, or all where none is.
func prefer(rows []row, good func(row) bool) ([]row, bool) {
	if some := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !good(r) }); len(some) > 0 {
		return some, true
	}
	return rows, false
}

// compare finds the best peer of every cell and variant. Rows that failed or gave a wrong element take
// no part. Only configurations with the same kind of pages meet, and TCP meets TCP.
func compare(rows []row, maxForeign float64) []comparison {
	by := map[cell]map[string][]row{}
	for _, r := range rows {
		if r.Failed != "" || r.Wrong > 0 {
			continue
		}
		c := cell{r.Coll, r.InPlace, r.Ranks, r.Bytes}
		if by[c] == nil {
			by[c] = map[string][]row{}
		}
		by[c][r.Config] = append(by[c][r.Config], r)
	}
	var out []comparison
	for _, c := range slices.SortedFunc(maps.Keys(by), compareCells) {
		var all []row
		for _, v := range variants {
			all = append(all, by[c][v.config]...)
		}
		at := usual(all)
		for i, v := range variants {
			ours := by[c][v.config]
			if len(ours) == 0 {
				continue
			}
			if x, ok := best(c, i, by[c], at, maxForeign); ok {
				out = append(out, x)
			}
		}
	}
	return out
}

// best compares a variant with the fastest peer that may be compared with it.
func best(c cell, variant int, configs map[string][]row, at string, maxForeign float64) (comparison, bool) {
	ours := configs[variants[variant].config]
	x := comparison{cell: c, variant: variant}
	x.ours, x.noisy = typical(ours, at, maxForeign)
	noisyPeer := false
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		theirs := configs[name]
		if theirs[0].Lib == "gccl" || theirs[0].Huge != ours[0].Huge || ours[0].TCP && !theirs[0].TCP {
			continue
		}
		if us, noisy := typical(theirs, at, maxForeign); x.peer == "" || us < x.theirs {
			x.peer, x.theirs, noisyPeer = name, us, noisy
		}
	}
	x.noisy = x.noisy || noisyPeer
	x.ratio = x.theirs / x.ours
	return x, x.peer != ""
}

// permitted is what the machine's bounds allow at best, in µs, for cells where they say something: the
// exchange of a line for the smallest messages of two ranks, and the memory bandwidth of all measured
// cores for working sets that are four times the last cache. 0: no statement.
func permitted(c cell, bounds []bound, l3 int) float64 {
	value := func(name string, cores int) float64 {
		var v []float64
		for _, b := range bounds {
			if b.Name == name && b.Cores == cores && b.Value > 0 {
				v = append(v, b.Value)
			}
		}
		if v == nil {
			return 0
		}
		return median(v)
	}
	if c.bytes <= 8 {
		if c.ranks != 2 {
			return 0
		}
		switch c.coll {
		case "pingpong":
			return value("flag, one line", 2) / 1e3
		case "allreduce", "barrier", "sendrecv", "alltoall", "allgather":
			return value("flag, two lines", 2) / 1e3
		}
		return 0
	}
	if l3 == 0 {
		l3 = 64 << 20
	}
	read, written := traffic(c)
	if read+written < 4*float64(l3) {
		return 0
	}
	r, w, both := value("read", 2), value("write", 2), value("copy", 2)
	if r == 0 || w == 0 || both == 0 {
		return 0
	}
	shared := min(read, written)
	return (shared/both + (read-shared)/r + (written-shared)/w) / 1e3
}

// traffic is the bytes that a call must read from and write to user buffers, over all ranks.
func traffic(c cell) (read, written float64) {
	s, n := float64(c.bytes), float64(c.ranks)
	switch c.coll {
	case "broadcast":
		return s, (n - 1) * s
	case "allgather":
		if c.inPlace {
			return s, (n - 1) * s
		}
		return s, n * s
	case "reducescatter", "reduce":
		return n * s, s
	case "pingpong":
		return s, s
	}
	return n * s, n * s // allreduce, alltoall, sendrecv
}

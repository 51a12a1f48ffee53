package simulate

import (
	"slices"
	"time"

	"github.com/gccl/gccl/schedule"
)

// Point is one length of data and its time.
type Point struct {
	Bytes        int
	Time         time.Duration
	Extrapolated bool // see Result
}

// Lengths is the lengths from, factor·from, factor²·from, … up to to. factor is at least 2.
func Lengths(from, to, factor int) []int {
	var list []int
	for n := max(from, 1); n <= to; n *= factor {
		list = append(list, n)
	}
	return list
}

// Sweep runs an algorithm for every length.
func Sweep(alg schedule.Algorithm, size int, shape schedule.Shape, lengths []int, p Params) ([]Point, error) {
	points := make([]Point, 0, len(lengths))
	if len(lengths) == 0 {
		return points, nil
	}
	if err := p.check(size, slices.Min(lengths)); err != nil {
		return nil, err
	}
	prog, err := programOf(alg, size, shape, &p, false)
	if err != nil {
		return nil, err
	}
	for _, n := range lengths {
		r, err := prog.run(size, n, &p, nil)
		if err != nil {
			return nil, err
		}
		points = append(points, Point{n, r.Time, r.Extrapolated})
	}
	return points, nil
}

// Range is the lengths for which one of several algorithms is the fastest.
type Range struct {
	Name     string
	From, To int // bytes; both among the lengths of the sweep
}

// Crossovers compares sweeps over the same lengths and returns who wins where, in rising order of
// lengths. Of equals the first wins.
func Crossovers(names []string, sweeps [][]Point) []Range {
	var ranges []Range
	if len(sweeps) == 0 {
		return nil
	}
	for i, at := range sweeps[0] {
		best := 0
		for s := range sweeps {
			if sweeps[s][i].Time < sweeps[best][i].Time {
				best = s
			}
		}
		if n := len(ranges); n > 0 && ranges[n-1].Name == names[best] {
			ranges[n-1].To = at.Bytes
		} else {
			ranges = append(ranges, Range{names[best], at.Bytes, at.Bytes})
		}
	}
	return ranges
}

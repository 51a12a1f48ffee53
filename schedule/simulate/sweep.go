package simulate

import (
	"time"

	"github.com/gccl/gccl/schedule"
)

// Point is one length of data and its time.
type Point struct {
	Bytes int
	Time  time.Duration
}

// Bandwidth is the bytes per second of the data, which nccl-tests call algbw.
func (p Point) Bandwidth() float64 { return float64(p.Bytes) / p.Time.Seconds() }

// Doublings is the lengths from, 2·from, 4·from, … up to to.
func Doublings(from, to int) []int {
	var list []int
	for n := max(from, 1); n <= to; n *= 2 {
		list = append(list, n)
	}
	return list
}

// Sweep runs an algorithm for every length.
func Sweep(alg schedule.Algorithm, size int, shape schedule.Shape, lengths []int, p Params) ([]Point, error) {
	points := make([]Point, 0, len(lengths))
	for _, n := range lengths {
		r, err := Run(alg, size, shape, n, p, nil)
		if err != nil {
			return nil, err
		}
		points = append(points, Point{n, r.Time})
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

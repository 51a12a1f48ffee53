// Package simulate predicts how long a schedule takes on a machine that does not exist yet: more
// ranks, other networks, other segment sizes.
//
// It plays the schedules of all ranks, in the streamed groups of [schedule.Fuse] and window by
// window as the executor does, with an event queue. The model is Hockney's α-β-γ (latency,
// bandwidth, reduction) with three additions that decide between algorithms in practice: a fixed
// price for every step, links of few slots, and ports that several transfers share. See [Params].
//
// Where all ranks do the same over the same kinds of links and share no ports, one rank stands for
// all of them, which makes a ring of 65,536 ranks a matter of a second; see [Result.Symmetric].
package simulate

import (
	"fmt"
	"time"

	"github.com/gccl/gccl/schedule"
)

// Result is what a simulation found.
type Result struct {
	Time     time.Duration // until the last rank has finished
	Windows  int           // replays of the schedule
	Segment  float64       // bytes of the longest segment
	Segments int64         // how many segments of steps were played
	// Symmetric tells that one rank was played for all. That is exact if every rank has the same
	// steps in the same order and the k-th of them sends to the rank whose step of one and the
	// same number receives it; it is checked for rank 0, all its neighbours and their neighbours.
	Symmetric bool
}

// Run plays the collective that alg makes for data of the given length: the longer of In and Out on
// the rank where they are longest. trace may be nil.
func Run(alg schedule.Algorithm, size int, shape schedule.Shape, bytes int, p Params, trace *Trace) (Result, error) {
	if err := p.check(size, bytes); err != nil {
		return Result{}, err
	}
	prog, err := symmetric(alg, size, shape, &p)
	if err != nil {
		return Result{}, err
	}
	if prog == nil || trace != nil {
		if prog, err = compile(alg, size, shape, &p); err != nil {
			return Result{}, err
		}
	}
	e := newEngine(prog, &p, bytes, trace)
	end, err := e.run()
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	return Result{
		Time:     time.Duration(end * float64(time.Second)),
		Windows:  e.windows,
		Segment:  e.longest,
		Segments: e.played, Symmetric: prog.ranks < size,
	}, nil
}

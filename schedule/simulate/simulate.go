// Package simulate predicts how long a schedule takes on a machine that does not exist yet: more
// ranks, other networks, other segment sizes.
//
// It plays the schedules of all ranks, in the streamed groups of [schedule.Fuse] and window by
// window as the executor does, with an event queue. The model is Hockney's α-β-γ (latency,
// bandwidth, reduction) with three additions that decide between algorithms in practice: a fixed
// price for every step, links of few slots, and ports that several transfers share. See [Params].
//
// Where all ranks, or all hosts, do the same over the same kinds of links and share no ports with others,
// one of them stands for all, which makes a ring of 65,536 ranks a matter of a second; see
// [Result.Symmetric]. Where they do not, and chunks have very many segments, the time is taken on from
// fewer; see [Result.Extrapolated].
package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/gccl/gccl/schedule"
)

// Result is what a simulation found.
type Result struct {
	Time     time.Duration // until the last rank has finished
	Windows  int           // replays of the schedule
	Segment  float64       // bytes of the longest segment
	Segments int64         // how many segments of steps were played
	// Symmetric tells that one rank, or one host, was played for all. That is exact if every rank, or
	// every rank of the same place on its host, has the same steps in the same order and the k-th of
	// them sends to the rank whose step of one and the same number receives it; it is checked for the
	// first ones, all their neighbours, and the neighbours of these, or of some of them.
	Symmetric bool
	// Extrapolated tells that chunks of fewer segments were played, of the same length, and the time
	// taken on in a straight line: once the first segments are through, each further one takes as
	// long as the one before. Ports that are given to who asks first deviate from that: the time was
	// within 6 % in what was compared (TestExtrapolation).
	Extrapolated bool
}

// Run plays the collective that alg makes for data of the given length: the longer of In and Out on
// the rank where they are longest. trace may be nil.
func Run(alg schedule.Algorithm, size int, shape schedule.Shape, bytes int, p Params, trace *Trace) (Result, error) {
	if err := p.check(size, bytes); err != nil {
		return Result{}, err
	}
	prog, err := programOf(alg, size, shape, &p, trace != nil)
	if err != nil {
		return Result{}, err
	}
	return prog.run(size, bytes, &p, trace)
}

// Played is how many ranks Run plays to find the time of all: see [Result.Symmetric].
func Played(alg schedule.Algorithm, size int, shape schedule.Shape, p Params) (int, error) {
	if err := p.check(size, 0); err != nil {
		return 0, err
	}
	prog, err := symmetric(alg, size, shape, &p)
	if prog == nil || err != nil {
		return size, err
	}
	return prog.ranks, nil
}

// programOf is the smallest program that stands for all ranks; all of them, if whole.
func programOf(alg schedule.Algorithm, size int, shape schedule.Shape, p *Params, whole bool) (*program, error) {
	if !whole {
		if prog, err := symmetric(alg, size, shape, p); prog != nil || err != nil {
			return prog, err
		}
	}
	return compile(alg, size, shape, p)
}

func (prog *program) run(size, bytes int, p *Params, trace *Trace) (Result, error) {
	if trace == nil {
		if r, ok, err := prog.extrapolate(size, bytes, p); ok || err != nil {
			return r, err
		}
	}
	return prog.play(size, float64(bytes), p, trace)
}

func (prog *program) play(size int, bytes float64, p *Params, trace *Trace) (Result, error) {
	e := newEngine(prog, p, bytes, trace)
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

// Chunks of more segments than segmentsPlayed are played with so many and with half as many more.
const segmentsPlayed = 16

// extrapolate plays a long pipeline in two shorter forms, if all ranks must be played, every step moves
// as much and nothing is replayed in windows.
func (prog *program) extrapolate(size, bytes int, p *Params) (Result, bool, error) {
	count := prog.uniform()
	if prog.ranks < largeProgram || prog.ahead > 0 || count == 0 {
		return Result{}, false, nil
	}
	segments := math.Ceil(float64(bytes) / float64(max(prog.chunks, 1)) * float64(count) / float64(p.Segment))
	n1, n2 := float64(segmentsPlayed+p.Slots), float64(segmentsPlayed+p.Slots)*3/2
	if segments <= n1+n2 {
		return Result{}, false, nil
	}
	a, err := prog.play(size, float64(bytes)*n1/segments, p, nil)
	if err != nil {
		return Result{}, false, err
	}
	b, err := prog.play(size, float64(bytes)*n2/segments, p, nil)
	if err != nil {
		return Result{}, false, err
	}
	b.Time += time.Duration(float64(b.Time-a.Time) * (segments - n2) / (n2 - n1))
	b.Segments, b.Extrapolated = b.Segments+a.Segments, true
	return b, true, nil
}

// largeProgram is the number of ranks from which on times are extrapolated.
const largeProgram = 1024

// uniform is the chunks that every step moves, or 0 if they differ.
func (prog *program) uniform() int32 {
	count := int32(0)
	for i := range prog.lanes {
		for _, st := range prog.lanes[i].steps {
			if count == 0 {
				count = st.count
			}
			if st.count != count {
				return 0
			}
		}
	}
	return count
}

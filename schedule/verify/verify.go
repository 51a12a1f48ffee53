// Package verify proves that the schedules of all ranks together compute a collective.
//
// What it proves holds for every execution that the executor may choose, not for one run only:
// values and deadlocks are decided by one greedy run (see package machine), and races by vector
// clocks. It proves it for one number of ranks at a time.
//
//   - The k-th Send of a link meets the k-th receive, with as many chunks of the same sizes.
//   - Every chunk of every Out ends up holding exactly what the collective says: each contribution
//     once, none twice, none missing, and the right chunk of it.
//   - In AllReduce all ranks hold the same expression, so that they hold the same bits.
//   - Every result is finished once, when it is complete, before it is passed on (Final).
//   - Nothing waits for ever, in links of as few slots as the schedule allows (Ahead), whether it
//     runs step by step or in the streamed groups of [schedule.Fuse], over any number of windows
//     with no barrier between them; and every link is empty at the end.
//   - No two lanes of a rank, and no two windows, touch one chunk at the same time unless both read.
//   - All of that is true in place too, unless the schedule is Disjoint.
//   - Early, Lazy and both together hold, where they are declared.
//
// Three things are derived and not run. What they rest on is checked for every set of schedules,
// never assumed, and where it does not hold, everything is run:
//
//   - Channels (Options.Channels): that copies share no lane and no chunk, and are equal, is
//     checked step by step for every number of channels; then one copy is proved (copyOf).
//   - Links: only the hardest are run, of one slot and three segments a chunk, or 3·Ahead+1 and
//     three. It follows for all with at most three segments a slot, or at most three segments and
//     segments·Ahead < slots (tightest). What lies beyond, above all more than three segments for
//     each slot where Ahead is 0, is not proved.
//   - Roots ([Roots]): only the first root is run in full if all other schedules are equal to its
//     own with the ranks renamed in a circle.
//
// [Symmetric] proves less, for sizes that are out of reach otherwise.
package verify

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

// Options has a usable zero value.
type Options struct {
	// Windows is how many replays follow each other without a barrier, for values and order; 0
	// means 2.
	Windows int
	// Links are the links to try. Nil: the tightest ones that the schedule's Ahead allows, for
	// chunks of one segment and of several. Empty: none.
	Links []Links
	// Channels is the most copies of the algorithm (see [schedule.Channels]) to prove it for, from
	// one up; 0 means 1. That copies share nothing is checked; what each of them does is then
	// proved once. The Report is that of one copy, or of the worse where a copy of several cuts
	// its spans.
	Channels int
	// SkipOrder leaves out races, Early and Lazy, whose cost grows with the square of the ranks.
	SkipOrder bool
	// SkipInPlace leaves out the second run, in place.
	SkipInPlace bool
}

// Links says how long links are.
type Links struct{ Slots, Segments int }

// Report is what is true of a schedule that passed. Costs are those of one window.
type Report struct {
	Steps      int  // messages on the longest chain of messages that wait for one another
	Sends      int  // messages on the longest chain, if a lane sends one after the other
	ChunkTimes int  // chunks on the longest chain, if a lane sends one after the other
	Sent       int  // chunks sent by the busiest rank
	Reduced    int  // chunks combined by the busiest rank
	Chunks     int  // chunks of the longest In or Out of any rank
	PerBlock   int  // chunks that divide a block
	Lanes      int  // most lanes of a rank
	Scratch    int  // most scratch chunks of a rank
	Depth      int  // ⊕ on the longest path of a result: its rounding errors grow with it
	Ordered    bool // the operands stand in the order of the ranks in every result: no need to commute
	Canonical  bool // every result is the left fold in the order of the ranks
	Uneven     bool // every block may have a length of its own
	Early      bool // Early would hold, whether declared or not; false if Options.SkipOrder
	Lazy       bool // likewise
}

// Check verifies what alg makes for all ranks of a size.
func Check(alg schedule.Algorithm, c schedule.Collective, size int, shape schedule.Shape, opts Options) (Report, error) {
	return check(size, opts, func(rank int) (schedule.Schedule, error) { return serve(alg, c, rank, size, shape) })
}

// serve makes the schedule of one rank, which must be for c and the root of shape.
func serve(alg schedule.Algorithm, c schedule.Collective, rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	s, err := alg(rank, size, shape)
	switch {
	case err != nil:
		return s, err
	case s.Collective != c:
		return s, fmt.Errorf("the schedule is for %v, not %v", s.Collective, c)
	case c.Rooted() && s.Root != shape.Root:
		return s, fmt.Errorf("root %d, not %d", s.Root, shape.Root)
	}
	return s, nil
}

// All verifies given schedules, one per rank in the order of the ranks.
func All(schedules []schedule.Schedule, opts Options) (Report, error) {
	return check(len(schedules), opts, func(rank int) (schedule.Schedule, error) { return schedules[rank], nil })
}

func check(size int, opts Options, next func(int) (schedule.Schedule, error)) (Report, error) {
	if opts.Windows == 0 {
		opts.Windows = 2
	}
	cut := false // whether a copy of several is another schedule than a single one
	rep, err := program(size, opts, func(rank int) (schedule.Schedule, error) {
		s, err := next(rank)
		if err != nil || opts.Channels < 2 {
			return s, err
		}
		if err = s.Validate(); err == nil {
			var one schedule.Schedule
			one, err = copyOf(&s, opts.Channels)
			cut = cut || !sameLanes(one.Lanes, s.Lanes)
		}
		return s, err
	})
	if err == nil && cut {
		var of Report
		of, err = program(size, opts, func(rank int) (schedule.Schedule, error) {
			s, err := next(rank)
			if err == nil {
				s, err = copyOf(&s, 2)
			}
			return s, err
		})
		rep.Steps, rep.Sends = max(rep.Steps, of.Steps), max(rep.Sends, of.Sends)
		rep.Early, rep.Lazy = rep.Early && of.Early, rep.Lazy && of.Lazy
	}
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	return rep, nil
}

// program verifies the schedules of one channel.
func program(size int, opts Options, next func(int) (schedule.Schedule, error)) (Report, error) {
	p, err := machine.New(size, next)
	if err != nil {
		return Report{}, err
	}
	if err := p.Pairs(); err != nil {
		return Report{}, err
	}
	rep := describe(p)
	if err := run(p, opts, &rep); err != nil {
		return Report{}, err
	}
	return rep, deadlocks(p, opts.Links)
}

func wrap(err error) error { return fmt.Errorf("verify: %w", err) }

func describe(p *machine.Program) Report {
	rep := Report{
		PerBlock: p.Heads[0].PerBlock(), Uneven: p.Uneven(),
		Ordered: true, Canonical: true, Early: true, Lazy: true,
	}
	for i := range p.Heads {
		rep.Chunks = max(rep.Chunks, p.Heads[i].In, p.Heads[i].Out)
		rep.Scratch = max(rep.Scratch, len(p.Heads[i].Scratch))
	}
	for i := range p.Lanes {
		rep.Lanes = max(rep.Lanes, p.Lanes[i].Index+1)
	}
	return rep
}

// run checks values, races, Early and Lazy, out of place and in place, and measures the cost. The
// fused order of units is the weaker one where groups stream spans longer than one chunk, and the
// same as the plain one elsewhere; cost is that of streamed groups.
func run(p *machine.Program, opts Options, rep *Report) error {
	modes := []bool{false, true}
	if p.Heads[0].Disjoint || opts.SkipInPlace {
		modes = modes[:1]
	}
	domain := newTerms(p.Heads[0].Collective, len(p.Heads))
	cost := machine.NewCost(p)
	handlers := []machine.Handler{cost}
	values := make([]*machine.Values[term], len(modes))
	for i, inPlace := range modes {
		values[i] = machine.NewValues[term](p, opts.Windows, inPlace, domain)
		if inPlace { // what is wrong in place is told only if all is well out of place
			handlers = append(handlers, values[i].Quiet())
		} else {
			handlers = append(handlers, values[i])
		}
	}
	var orders []*machine.Order // fused and, where it differs, plain
	if !opts.SkipOrder {
		orders = append(orders, machine.NewOrder(p, opts.Windows, modes...))
		handlers = append(handlers, orders[0])
	}
	if err := machine.Run(p, machine.Config{Windows: opts.Windows, Fused: true}, handlers...); err != nil {
		return err
	}
	if !opts.SkipOrder && p.Streams() {
		orders = append(orders, machine.NewOrder(p, opts.Windows, modes...))
		if err := machine.Run(p, machine.Config{Windows: opts.Windows}, orders[1]); err != nil {
			return err
		}
	}
	rep.Steps, rep.Sends, rep.ChunkTimes = cost.Longest()
	rep.Sent, rep.Reduced = cost.Busiest()
	if opts.SkipOrder {
		rep.Early, rep.Lazy = false, false
	}
	for i, inPlace := range modes {
		err := values[i].Err()
		if err == nil {
			err = results(p, values[i], domain, opts.Windows, rep)
		}
		for _, order := range orders {
			if err == nil {
				err = promises(p, order.View(i), rep)
			}
		}
		switch {
		case err != nil && inPlace:
			return fmt.Errorf("in place: %w", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// promises holds Early and Lazy against what was found, if there is no race.
func promises(p *machine.Program, memory *machine.View, rep *Report) error {
	if err := memory.Race(); err != nil {
		return err
	}
	early, lazy, both := memory.Early(), memory.Lazy(), memory.Both()
	rep.Early = rep.Early && early == nil
	rep.Lazy = rep.Lazy && lazy == nil
	h := &p.Heads[0]
	switch {
	case h.Early && early != nil:
		return early
	case h.Lazy && lazy != nil:
		return lazy
	case h.Early && h.Lazy && both != nil:
		return both
	}
	return nil
}

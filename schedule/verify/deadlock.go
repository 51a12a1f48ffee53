package verify

import (
	"fmt"
	"math"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

// deadlocks runs the program on every kind of links, plain and fused. One window is enough: if it
// ends, with all links empty, then so do any number of them one after the other, and whatever
// ends in one order of steps ends in every order.
func deadlocks(p *machine.Program, links []Links) error {
	if links == nil {
		links = tightest(p.Heads[0].Ahead)
	}
	for _, k := range links {
		for _, fused := range []bool{false, true} {
			cfg := machine.Config{Slots: k.Slots, Segments: k.Segments, Fused: fused}
			if err := machine.Run(p, cfg); err != nil {
				return err
			}
		}
	}
	return nil
}

// tightest is the links on which a schedule with this Ahead must just run.
func tightest(ahead int) []Links {
	if ahead == 0 {
		return []Links{{1, 1}, {1, 3}, {2, 5}}
	}
	return []Links{{ahead + 1, 1}, {3*ahead + 1, 3}}
}

// Ahead is the least Ahead with which given schedules, one per rank, do not deadlock, whatever
// they declare. It fails if none will do, which means that they deadlock on endless links too.
func Ahead(schedules []schedule.Schedule) (int, error) {
	p, err := machine.New(len(schedules), func(rank int) (schedule.Schedule, error) { return schedules[rank], nil })
	if err != nil {
		return 0, wrap(err)
	}
	if err := p.Pairs(); err != nil {
		return 0, wrap(err)
	}
	if err := deadlocks(p, []Links{{Slots: 0, Segments: 1}}); err != nil {
		return 0, wrap(err)
	}
	fits := func(ahead int) bool { return deadlocks(p, tightest(ahead)) == nil }
	if fits(0) {
		return 0, nil
	}
	// More slots never hurt, so that the answer can be searched by halving.
	low, high := 0, 1
	for !fits(high) {
		if high > math.MaxInt32/8 {
			return 0, fmt.Errorf("verify: no number of slots will do")
		}
		low, high = high, 2*high
	}
	for high-low > 1 {
		if mid := (low + high) / 2; fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high, nil
}

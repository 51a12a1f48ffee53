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
			if fused && !p.Groups() {
				continue // the same run again
			}
			cfg := machine.Config{Slots: k.Slots, Segments: k.Segments, Fused: fused}
			if err := machine.Run(p, cfg); err != nil {
				return err
			}
		}
	}
	return nil
}

// tightest is the links on which a schedule with this Ahead must just run: chunks of most segments
// on the least slots for them. What runs there, runs wherever segments are at most most for each
// slot (Ahead 0), or at most most and segments·Ahead < slots (else):
//
//   - More slots never hurt: nothing waits for what it did not wait for before.
//   - s slots and k segments are worse than s·c slots and k·c segments: let c small segments move
//     wherever a large one did.
//   - They are worse than fewer segments j < k on as many slots, or on ahead·j+1 of ahead·k+1: let
//     segment i of j move when segment i+k−j of k did. What it waits for comes no later: the
//     segment before it in the chunk, which has moved; in the first place of a chunk, the last
//     segment of the chunk before; the slot, because counted back from segment i+k−j over so many
//     slots lies a segment as late as the one counted back from segment i, or later.
//
// TestTightest runs random programs over all of these links.
func tightest(ahead int) []Links {
	return []Links{{Slots: most*ahead + 1, Segments: most}}
}

// most is the segments of a chunk that are tried for each slot.
const most = 3

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

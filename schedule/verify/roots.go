package verify

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// Roots verifies a rooted collective for each of the roots, and tells each what [Check] would
// report. It runs the schedules of a root only if they are not those of the first root with all
// ranks renamed in a circle: equal programs but for the names of the ranks have equal runs.
//
// What renaming changes is the order of the ranks. So values are computed for every root in a
// collective that reduces, which is cheap; and that channels are copies is checked for every root.
func Roots(alg schedule.Algorithm, c schedule.Collective, size int, shape schedule.Shape, roots []int, opts Options,
	each func(root int, rep Report) error,
) error {
	var first, firstCopies []schedule.Schedule
	var proved Report
	for _, root := range roots {
		shape.Root = root
		all := make([]schedule.Schedule, size)
		for r := range all {
			var err error
			if all[r], err = serve(alg, c, r, size, shape); err != nil {
				return fmt.Errorf("verify: root %d: rank %d: %w", root, r, err)
			}
		}
		copies, err := copiesOf(all, opts.Channels)
		if err != nil {
			return fmt.Errorf("verify: root %d: %w", root, err)
		}
		var rep Report
		if first != nil && rotated(first, all) && rotated(firstCopies, copies) {
			rep = proved
			if c.Reduces() {
				var values Report
				values, err = All(all, Options{Windows: 1, Links: []Links{}, SkipOrder: true, SkipInPlace: true})
				rep.Ordered, rep.Canonical = values.Ordered, values.Canonical
			}
		} else {
			rep, err = All(all, opts)
			if first == nil {
				first, firstCopies, proved = all, copies, rep
			}
		}
		if err == nil {
			err = each(root, rep)
		}
		if err != nil {
			return fmt.Errorf("root %d: %w", root, err)
		}
	}
	return nil
}

func copiesOf(all []schedule.Schedule, most int) ([]schedule.Schedule, error) {
	if most < 2 {
		return nil, nil
	}
	copies := make([]schedule.Schedule, len(all))
	for r := range all {
		err := all[r].Validate()
		if err == nil {
			copies[r], err = copyOf(&all[r], most)
		}
		if err != nil {
			return nil, err
		}
	}
	return copies, nil
}

// rotated tells whether b, the schedules of all ranks, is a with rank r renamed to r+d modulo the
// number of ranks, where d is how much further b's root is; blocks that belong to ranks are
// renamed with them.
func rotated(a, b []schedule.Schedule) bool {
	if len(a) != len(b) || len(a) == 0 {
		return len(a) == len(b)
	}
	n := len(a)
	d := (b[0].Root - a[0].Root + n) % n
	for r := range a {
		s := &a[r]
		c, shift := s.Collective, d*s.PerBlock()
		if !renamed(s, &b[(r+d)%n], d, func(b schedule.Buf, chunk int) (to, of int) {
			of, blocks := s.In, c.InBlocks(n)
			if b == schedule.Out {
				of, blocks = s.Out, c.OutBlocks(n)
			}
			if blocks == 1 {
				return chunk, of
			}
			return (chunk + shift) % of, of
		}) {
			return false
		}
	}
	return true
}

// renamed tells whether t is s with every rank renamed to the one d further, and every chunk of In
// and Out to what move says, which also says how many chunks the buffer has.
func renamed(s, t *schedule.Schedule, d int, move func(b schedule.Buf, chunk int) (to, of int)) bool {
	n := s.Size
	head := *s
	head.Rank = (s.Rank + d) % n
	if s.Collective.Rooted() {
		head.Root = (s.Root + d) % n
	}
	head.Scratch = t.Scratch
	if !sameHead(&head, t) || len(s.Scratch) != len(t.Scratch) || len(s.Lanes) != len(t.Lanes) {
		return false
	}
	// span moves a span; one that falls apart is no span.
	span := func(sp schedule.Span) (schedule.Span, bool) {
		if sp.Buf != schedule.In && sp.Buf != schedule.Out {
			return sp, true
		}
		to, of := move(sp.Buf, sp.First)
		sp.First = to
		return sp, to+sp.Count <= of
	}
	for i, ch := range s.Scratch {
		if sp, _ := span(schedule.At(ch.Buf, ch.Index)); sp != schedule.At(t.Scratch[i].Buf, t.Scratch[i].Index) {
			return false
		}
	}
	for l := range s.Lanes {
		if len(s.Lanes[l]) != len(t.Lanes[l]) {
			return false
		}
		for i := range s.Lanes[l] {
			st := s.Lanes[l][i]
			if st.Op != schedule.Copy && st.Op != schedule.Combine {
				st.Peer = (st.Peer + d) % n
			}
			var whole [2]bool
			st.Src, whole[0] = span(st.Src)
			st.Dst, whole[1] = span(st.Dst)
			if st != t.Lanes[l][i] || !whole[0] || !whole[1] {
				return false
			}
		}
	}
	return true
}

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
		if !renamed(&a[r], &b[(r+d)%n], d) {
			return false
		}
	}
	return true
}

// renamed tells whether t is s with every rank renamed to the one d further.
func renamed(s, t *schedule.Schedule, d int) bool {
	n, c := s.Size, s.Collective
	head := *s
	head.Rank, head.Root = (s.Rank+d)%n, (s.Root+d)%n
	head.Scratch = t.Scratch
	if !sameHead(&head, t) || len(s.Scratch) != len(t.Scratch) || len(s.Lanes) != len(t.Lanes) {
		return false
	}
	shift := d * s.PerBlock()
	// span renames the blocks of a span that are ranks' own; a span that falls apart is no span.
	span := func(sp schedule.Span) (schedule.Span, bool) {
		of := 0
		switch {
		case sp.Buf == schedule.In && c.InBlocks(n) > 1:
			of = s.In
		case sp.Buf == schedule.Out && c.OutBlocks(n) > 1:
			of = s.Out
		default:
			return sp, true
		}
		sp.First = (sp.First + shift) % of
		return sp, sp.First+sp.Count <= of
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

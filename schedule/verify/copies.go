package verify

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/schedule"
)

// copyOf checks that [schedule.Channels] makes of s, for every number of channels from 2 to most,
// copies of one schedule that share nothing, and returns that schedule. It is s itself, or differs
// from it only in that spans over several blocks are several steps.
//
// Then whatever is proved of the copy is true of any number of copies from 1 to most that run side
// by side. They have no lane in common and so no link, no After and no slot; no chunk of any
// buffer in common, in place either, because in and out are shared out within each block and the
// buffers of a call meet in whole blocks. So a run of all is a run of each; and chunk i of a
// result is chunk i of one copy's, which holds the same chunk of the same block of everybody.
func copyOf(s *schedule.Schedule, most int) (schedule.Schedule, error) {
	var first schedule.Schedule
	for n := 2; n <= most; n++ {
		all := schedule.Channels(*s, n)
		got, err := separate(s, &all, n)
		if err == nil && n > 2 && !sameLanes(first.Lanes, got.Lanes) {
			err = fmt.Errorf("the copies differ from those of 2 channels")
		}
		if err != nil {
			return first, fmt.Errorf("rank %d: %d channels: %w", s.Rank, n, err)
		}
		if n == 2 {
			first = got
		}
	}
	return first, nil
}

// separate takes the n copies of s apart and returns the first, after a look at all others.
func separate(s, all *schedule.Schedule, n int) (schedule.Schedule, error) {
	head, want := *all, *s
	head.In, head.Out, head.Scratch, head.Lanes = s.In, s.Out, s.Scratch, nil
	want.Lanes = nil
	if !sameHead(&head, &want) || all.In != n*s.In || all.Out != n*s.Out ||
		len(all.Scratch) != n*len(s.Scratch) || len(all.Lanes) != n*len(s.Lanes) {
		return want, fmt.Errorf("the head is not that of %d copies", n)
	}
	for c := range n {
		x := taker{s: s, perBlock: s.PerBlock(), copy: c, copies: n}
		for i, ch := range s.Scratch {
			got := all.Scratch[c*len(s.Scratch)+i]
			if x.take(schedule.At(got.Buf, got.Index)) != schedule.At(ch.Buf, ch.Index) || x.strays {
				return want, fmt.Errorf("copy %d has scratch[%d] of another size", c, i)
			}
		}
		for l := range s.Lanes {
			lane := all.Lanes[c*len(s.Lanes)+l]
			if c == 0 {
				want.Lanes = append(want.Lanes, slices.Grow(schedule.Lane(nil), len(lane)))
			} else if len(lane) != len(want.Lanes[l]) {
				return want, fmt.Errorf("copy %d has %d steps in lane %d", c, len(lane), l)
			}
			for i := range lane {
				st := x.step(lane[i])
				if c == 0 {
					want.Lanes[l] = append(want.Lanes[l], st)
				}
				if x.strays || st != want.Lanes[l][i] {
					return want, fmt.Errorf("copy %d strays in lane %d step %d (%v)", c, l, i, lane[i])
				}
			}
		}
	}
	return want, nil
}

// taker undoes what [schedule.Channels] does to one copy.
type taker struct {
	s            *schedule.Schedule
	perBlock     int
	copy, copies int
	strays       bool // something lies outside the copy's share
}

func (x *taker) step(st schedule.Step) schedule.Step {
	st.Src, st.Dst = x.take(st.Src), x.take(st.Dst)
	if st.After.Steps > 0 {
		st.After.Lane -= x.copy * len(x.s.Lanes)
		x.strays = x.strays || st.After.Lane < 0 || st.After.Lane >= len(x.s.Lanes)
	}
	return st
}

func (x *taker) take(sp schedule.Span) schedule.Span {
	room, shift := len(x.s.Scratch), 0
	switch sp.Buf {
	case schedule.None:
		return sp
	case schedule.In, schedule.Out:
		room = x.perBlock
		shift = sp.First / (x.copies * room) * room // chunks of the copy in the blocks before
	}
	sp.First -= x.copies*shift + x.copy*room
	x.strays = x.strays || sp.First < 0 || sp.Count > room-sp.First
	sp.First += shift
	return sp
}

func sameHead(a, b *schedule.Schedule) bool {
	return a.Collective == b.Collective && a.Rank == b.Rank && a.Size == b.Size && a.Root == b.Root &&
		a.In == b.In && a.Out == b.Out && a.Ahead == b.Ahead && a.Early == b.Early && a.Lazy == b.Lazy &&
		a.Disjoint == b.Disjoint && slices.Equal(a.Scratch, b.Scratch)
}

func sameLanes(a, b []schedule.Lane) bool {
	return slices.EqualFunc(a, b, func(x, y schedule.Lane) bool { return slices.Equal(x, y) })
}

package machine

import "github.com/gccl/gccl/schedule"

// layout numbers the places that steps write: the chunks of Out of every window and of Scratch, of
// all ranks. Chunks of In have a place only where they are the same memory as a chunk of Out.
type layout struct {
	p       *Program
	windows int
	inPlace bool
	base    []int // base[rank]: Out of window 0, Out of window 1, …, Scratch
}

func newLayout(p *Program, windows int, inPlace bool) layout {
	l := layout{p: p, windows: max(windows, 1), inPlace: inPlace, base: make([]int, len(p.Heads)+1)}
	for r := range p.Heads {
		l.base[r+1] = l.base[r] + l.windows*p.Heads[r].Out + len(p.Heads[r].Scratch)
	}
	return l
}

func (l *layout) places() int { return l.base[len(l.base)-1] }

// place is −1 for a chunk of In that is not also a chunk of Out.
func (l *layout) place(rank int, b schedule.Buf, chunk, window int) int {
	h := &l.p.Heads[rank]
	switch b {
	case schedule.Scratch:
		return l.base[rank] + l.windows*h.Out + chunk
	case schedule.Out:
		return l.base[rank] + window*h.Out + chunk
	}
	if !l.inPlace || h.Out == 0 {
		return -1
	}
	shift := h.Collective.InPlaceOffset(rank, h.Size) * h.PerBlock()
	if h.In > h.Out {
		chunk -= shift
	} else {
		chunk += shift
	}
	if chunk < 0 || chunk >= h.Out {
		return -1
	}
	return l.base[rank] + window*h.Out + chunk
}

// idle tells whether a unit does nothing: in place, a Copy from a chunk to itself. Where In is
// scaled or results are finished, it is work all the same.
func (l *layout) idle(rank int, st *Step, unit, window int) bool {
	return l.inPlace && st.Op == schedule.Copy && !l.p.Heads[rank].Collective.Reduces() &&
		l.place(rank, st.SrcBuf, int(st.Src)+unit, window) == l.place(rank, st.DstBuf, int(st.Dst)+unit, window)
}

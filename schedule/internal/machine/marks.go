package machine

import "slices"

// marks keeps what a handler knew of a lane at the moments that an After names. A run may have
// moved the lane on by the time that the waiting lane looks.
type marks[T any] struct {
	windows int
	lanes   [][]mark[T]
}

type mark[T any] struct {
	steps int
	seen  []bool // by window
	what  []T
}

func newMarks[T any](p *Program, windows int) marks[T] {
	m := marks[T]{windows: windows, lanes: make([][]mark[T], len(p.Lanes))}
	for l := range p.Lanes {
		for i := range p.Lanes[l].Steps {
			st := &p.Lanes[l].Steps[i]
			if st.AfterSteps == 0 {
				continue
			}
			if at, found := m.find(st.AfterLane, int(st.AfterSteps)); !found {
				m.lanes[st.AfterLane] = slices.Insert(m.lanes[st.AfterLane], at,
					mark[T]{int(st.AfterSteps), make([]bool, windows), make([]T, windows)})
			}
		}
	}
	return m
}

func (m *marks[T]) find(lane int32, steps int) (int, bool) {
	return slices.BinarySearchFunc(m.lanes[lane], steps, func(k mark[T], s int) int { return k.steps - s })
}

// finished calls what for every mark that the lane passes by having finished steps steps.
func (m *marks[T]) finished(lane int32, window, steps int, what func() T) {
	for i := range m.lanes[lane] {
		k := &m.lanes[lane][i]
		if k.steps > steps {
			break
		}
		if !k.seen[window] {
			k.seen[window], k.what[window] = true, what()
		}
	}
}

// at is what was noted when the lane passed the mark.
func (m *marks[T]) at(st *Step, window int) T {
	i, _ := m.find(st.AfterLane, int(st.AfterSteps))
	return m.lanes[st.AfterLane][i].what[window]
}

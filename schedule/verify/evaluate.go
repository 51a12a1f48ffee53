package verify

import (
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

// Arithmetic is a number system for [Evaluate]. Values are passed around and kept: the functions
// return new ones and change nothing.
type Arithmetic[V any] struct {
	Input  func(rank, chunk int) V // what a chunk of In holds
	Reduce func(left, right V) V   // left ⊕ right; may be nil where nothing is reduced
	Finish func(v V) V             // at Final steps; nil: leaves v as it is
}

// Evaluate computes what the schedules put in Out, one window, over any kind of values, reducing
// in exactly the order that the schedules say. out[rank][chunk] is the zero V where nothing is
// written. It is the oracle for whatever else runs schedules.
func Evaluate[V any](schedules []schedule.Schedule, a Arithmetic[V]) (out [][]V, err error) {
	p, err := machine.New(len(schedules), func(rank int) (schedule.Schedule, error) { return schedules[rank], nil })
	if err != nil {
		return nil, wrap(err)
	}
	if err := p.Pairs(); err != nil {
		return nil, wrap(err)
	}
	values := machine.NewValues[V](p, 1, false, arithmetic[V]{a})
	if err := machine.Run(p, machine.Config{}, values); err != nil {
		return nil, wrap(err)
	}
	out = make([][]V, len(schedules))
	for r := range out {
		out[r] = make([]V, schedules[r].Out)
		for i := range out[r] {
			out[r][i], _ = values.Out(r, 0, i)
		}
	}
	return out, nil
}

type arithmetic[V any] struct{ a Arithmetic[V] }

func (a arithmetic[V]) Input(rank, _, chunk int) V      { return a.a.Input(rank, chunk) }
func (a arithmetic[V]) Reduce(left, right V) (V, error) { return a.a.Reduce(left, right), nil }
func (a arithmetic[V]) Finish(_ int, v V) (V, error) {
	if a.a.Finish != nil {
		v = a.a.Finish(v)
	}
	return v, nil
}

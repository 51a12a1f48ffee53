package machine

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// Domain is a number system. Values are passed around and kept, so that Reduce and Finish return
// new ones and change nothing.
type Domain[V any] interface {
	// Input is what a chunk of In holds when the call begins.
	Input(rank, window, chunk int) V
	// Reduce is left ⊕ right.
	Reduce(left, right V) (V, error)
	// Finish is what becomes of the complete reduction at a Final step of a rank.
	Finish(rank int, v V) (V, error)
}

// Values computes what every buffer holds.
type Values[V any] struct {
	layout
	domain  Domain[V]
	held    []V
	state   []state
	partial [][]V // by lane and unit: what an n-ary step has built so far
	queues  queues[V]
	turner  Turner[V] // in a symmetric program
	err     error
}

// state is what became of a place in a run.
type state uint8

const (
	untouched state = iota
	written
	// kept is what a chunk of In and Out at once holds after a Copy from itself to itself.
	kept
)

// NewValues makes a handler for one run of p. In place, In and Out are the same memory as
// schedule.Collective.InPlaceOffset says.
func NewValues[V any](p *Program, windows int, inPlace bool, domain Domain[V]) *Values[V] {
	l := newLayout(p, windows, inPlace)
	v := &Values[V]{
		layout: l, domain: domain,
		held: make([]V, l.places()), state: make([]state, l.places()),
		partial: make([][]V, len(p.Lanes)),
		queues:  newQueues[V](p, l.windows),
	}
	if p.symmetric {
		v.turner = domain.(Turner[V])
	}
	return v
}

// Out is what a chunk of Out holds now, and whether anything was written there.
func (v *Values[V]) Out(rank, window, chunk int) (V, bool) {
	i := v.place(rank, schedule.Out, chunk, window)
	return v.held[i], v.state[i] != untouched
}

// Unit implements Handler.
func (v *Values[V]) Unit(lane, step int32, st *Step, window, unit int) {
	if v.err != nil {
		return
	}
	rank := v.p.Lanes[lane].Rank
	if err := v.unit(lane, step, rank, st, window, unit); err != nil {
		v.err = fmt.Errorf("%s: %w", v.p.Where(lane, step), err)
		if v.windows > 1 {
			v.err = fmt.Errorf("window %d %w", window, v.err)
		}
	}
}

// Finished implements Handler.
func (v *Values[V]) Finished(int32, int, int) {}

// Waited implements Handler.
func (v *Values[V]) Waited(int32, int, *Step) {}

// Err implements Handler.
func (v *Values[V]) Err() error { return v.err }

func (v *Values[V]) unit(lane, step int32, rank int, st *Step, window, unit int) error {
	goesOn := step > 0 && v.p.Lanes[lane].Steps[step-1].more
	dst := int(st.Dst) + unit
	old := func() (V, error) { // what Dst holds, for the steps that reduce into it
		if goesOn {
			return v.partial[lane][unit], nil
		}
		return v.read(rank, st.DstBuf, dst, window)
	}
	var operand, got V
	var err error
	switch {
	case goesOn && st.Op == schedule.RecvReduce:
		operand, err = old()
	case st.SrcBuf != schedule.None:
		operand, err = v.read(rank, st.SrcBuf, int(st.Src)+unit, window)
	}
	if err != nil {
		return err
	}
	switch st.Op {
	case schedule.Send:
		v.queues.push(st.Link, operand)
		return nil
	case schedule.Recv:
		got = v.receive(st)
	case schedule.RecvReduce:
		got, err = v.reduce(operand, v.receive(st), st.Left)
	case schedule.Copy:
		got = operand
	case schedule.Combine:
		if got, err = old(); err == nil {
			got, err = v.reduce(got, operand, st.Left)
		}
	}
	if err == nil && st.Final {
		got, err = v.domain.Finish(rank, got)
	}
	if err != nil {
		return err
	}
	if st.more {
		if unit >= len(v.partial[lane]) {
			v.partial[lane] = append(v.partial[lane], make([]V, unit+1-len(v.partial[lane]))...)
		}
		v.partial[lane][unit] = got
		return nil
	}
	i := v.place(rank, st.DstBuf, dst, window)
	v.held[i], v.state[i] = got, written
	if v.idle(rank, st, unit, window) {
		v.state[i] = kept
	}
	return nil
}

// receive is what a link brings next.
func (v *Values[V]) receive(st *Step) V {
	x := v.queues.pop(st.Link)
	if v.turner != nil {
		x = v.turner.Turn(x, v.p.opposite(int(v.p.Links[st.Link].To)))
	}
	return x
}

// Quiet is v as a handler whose errors do not stop the run; [Values.Err] has them in the end.
func (v *Values[V]) Quiet() Handler { return quiet[V]{v} }

type quiet[V any] struct{ *Values[V] }

func (quiet[V]) Err() error { return nil }

// reduce puts the second operand on the right, or with left on the left.
func (v *Values[V]) reduce(a, b V, left bool) (V, error) {
	if left {
		a, b = b, a
	}
	return v.domain.Reduce(a, b)
}

var (
	errUnwritten   = errors.New("nothing was written there")
	errOverwritten = errors.New("in place, the chunk of in was overwritten before")
)

func (v *Values[V]) read(rank int, b schedule.Buf, chunk, window int) (V, error) {
	i := v.place(rank, b, chunk, window)
	if b == schedule.In {
		if i >= 0 && v.state[i] == written {
			return v.held[i], fmt.Errorf("reads %v: %w", schedule.At(b, chunk), errOverwritten)
		}
		return v.domain.Input(rank, window, chunk), nil
	}
	if v.state[i] == untouched {
		return v.held[i], fmt.Errorf("reads %v: %w", schedule.At(b, chunk), errUnwritten)
	}
	return v.held[i], nil
}

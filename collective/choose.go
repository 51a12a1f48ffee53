package collective

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// choice is an algorithm with its parameters.
type choice struct {
	info     *schedule.Info
	index    int
	shape    schedule.Shape
	channels int
	window   int // elements of a chunk in one window; 0: all in one
}

// choose picks an algorithm from data that all ranks have agreed on.
func (c *Comm) choose(key planKey) (choice, error) {
	found, err := c.tuning.tuner.Choose(c.query(key))
	if errors.Is(err, tuner.ErrNone) {
		return choice{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return choice{}, fmt.Errorf("%w: %w", ErrInternal, err)
	}
	return c.chosen(key, found.Candidate), nil
}

// chosen is the choice of a candidate.
func (c *Comm) chosen(key planKey, cand tuner.Candidate) choice {
	ch := choice{info: &c.catalog[cand.Index], index: cand.Index, channels: cand.Channels,
		shape: schedule.Shape{Root: key.root, Hosts: c.tuning.hosts}}
	if cand.Chunk > 0 {
		ch.window = max(1, cand.Chunk/key.dtype.Size())
	}
	return ch
}

// query is a call as the tuner sees it.
func (c *Comm) query(key planKey) tuner.Query {
	if key.kind == Barrier {
		return tuner.Query{Collective: schedule.AllGather, InPlace: true, Free: true}
	}
	coll := schedule.Collective(key.kind)
	q := tuner.Query{Collective: coll, Bytes: key.count * key.dtype.Size(), Registered: key.registered, InPlace: true, Uneven: key.uneven}
	switch {
	case key.uneven && coll != schedule.AllGather && coll != schedule.ReduceScatter:
		q.Bytes, q.Pairwise = 0, true
	case !key.uneven:
		q.Bytes *= max(coll.InBlocks(c.size), coll.OutBlocks(c.size))
	}
	if coll == schedule.AllToAll {
		q.InPlace = key.inPlace
	}
	if coll.Reduces() {
		q.Ordered = !key.op.Commutative()
		q.Exact = integer(key.dtype) && !key.op.Custom()
		q.Narrow = narrow(key.dtype)
	}
	return q
}

// integer tells whether sums and products of the type are exact, wrapped.
func integer(dt tensor.DType) bool {
	switch dt {
	case tensor.Float64, tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float8E4M3, tensor.Float8E5M2:
		return false
	}
	return true
}

// narrow tells whether reductions of the type are computed in float32 and rounded once per step.
func narrow(dt tensor.DType) bool { return !integer(dt) && dt.Size() < 4 }

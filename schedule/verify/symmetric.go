package verify

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

// Symmetric verifies an algorithm in which all ranks do the same, at sizes that [Check] cannot
// reach: it makes the schedules of all ranks, on all cores, and checks that each is that of rank 0
// with ranks and chunks turned in a circle. Then all ranks may run in step, and one run of rank 0
// speaks for all. It fails where the schedules are not symmetric.
//
// It proves one window out of place: pairs, values, equal bits on all ranks, Final and freedom
// from deadlock. It looks for neither races nor what Report calls Ordered, Canonical, Uneven,
// Early and Lazy, which it leaves false.
func Symmetric(alg schedule.Algorithm, c schedule.Collective, size int, shape schedule.Shape) (Report, error) {
	first, err := serve(alg, c, 0, size, shape)
	if err == nil {
		err = first.Validate()
	}
	if err != nil {
		return Report{}, fmt.Errorf("verify: rank 0: %w", err)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for r := 1; r < size; r++ {
		g.Go(func() error {
			s, err := serve(alg, c, r, size, shape)
			if err == nil && !turned(&first, &s, r) {
				err = errors.New("the schedule is not that of rank 0, turned")
			}
			if err != nil {
				return fmt.Errorf("verify: rank %d: %w", r, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Report{}, err
	}
	rep, err := symmetric(first)
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	return rep, nil
}

// turned tells whether t is s, of rank 0, with all ranks renamed to those d further and all chunks
// turned by d.
func turned(s, t *schedule.Schedule, d int) bool {
	return renamed(s, t, d, func(b schedule.Buf, chunk int) (int, int) {
		if b == schedule.In {
			return machine.Turn(s, b, chunk, d), s.In
		}
		return machine.Turn(s, b, chunk, d), s.Out
	})
}

func symmetric(s schedule.Schedule) (Report, error) {
	p, err := machine.Symmetric(s)
	if err != nil {
		return Report{}, err
	}
	if err := p.Pairs(); err != nil {
		return Report{}, err
	}
	domain := &circle{head: &p.Heads[0]}
	values, cost := machine.NewValues[turning](p, 1, false, domain), machine.NewCost(p)
	if err := machine.Run(p, machine.Config{Fused: true}, values, cost); err != nil {
		return Report{}, err
	}
	rep := Report{
		Chunks: max(s.In, s.Out), PerBlock: s.PerBlock(), Lanes: len(s.Lanes), Scratch: len(s.Scratch),
	}
	rep.Steps, rep.Sends, rep.ChunkTimes = cost.Longest()
	rep.Sent, rep.Reduced = cost.Busiest()
	for i := range s.Out {
		v, err := turningResult(values, domain, i)
		if err != nil {
			return Report{}, fmt.Errorf("out[%d]: %w", i, err)
		}
		rep.Depth = max(rep.Depth, v.depth)
	}
	return rep, deadlocks(p, nil)
}

// turningResult compares a chunk of Out of rank 0 with what the collective says.
func turningResult(values *machine.Values[turning], domain *circle, i int) (turning, error) {
	h := domain.head
	v, written := values.Out(0, 0, i)
	from, to, in := wanted(h, 0, i)
	switch {
	case !written:
		return v, errUnwritten
	case v.chunk != in:
		return v, fmt.Errorf("holds in[%d] instead of in[%d]", v.chunk, in)
	case !slices.Equal(v.set, domain.ranks(from, to)):
		return v, errors.New("some contributions are missing or should not be there")
	case h.Collective.Finishes() && !v.final:
		return v, errUnfinished
	case h.Collective != schedule.AllReduce:
		return v, nil
	}
	// The chunk of rank 1 that chunk i turns into is chunk i of rank 0, turned. If rank 0 has the
	// same expression there, for every i, then so have all ranks.
	next, _ := values.Out(0, 0, machine.Turn(h, schedule.Out, i, 1))
	if next.expr != v.expr || next.first != (v.first+1)%h.Size {
		return v, errors.New("not the same expression as at the next rank: the bits may differ")
	}
	return v, nil
}

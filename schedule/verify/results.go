package verify

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
)

// results compares every chunk of every Out with what the collective says.
func results(p *machine.Program, values *machine.Values[term], domain *terms, windows int, rep *Report) error {
	for w := range windows {
		for r := range p.Heads {
			h := &p.Heads[r]
			for i := range h.Out {
				v, written := values.Out(r, w, i)
				if err := result(h, domain, r, i, v, written); err != nil {
					return fmt.Errorf("window %d rank %d out[%d]: %w", w, r, i, err)
				}
				if first, _ := values.Out(0, w, i); h.Collective == schedule.AllReduce && v.expr != first.expr {
					return fmt.Errorf("window %d rank %d out[%d]: not the same expression as at rank 0: the bits may differ", w, r, i)
				}
				if !written {
					continue
				}
				rep.Depth = max(rep.Depth, int(v.depth))
				rep.Ordered = rep.Ordered && v.ordered
				if r == 0 || h.Collective != schedule.AllReduce { // elsewhere it is the same expression
					from, to, in := wanted(h, r, i)
					rep.Canonical = rep.Canonical && v.expr == domain.fold(from, to, w, in)
				}
			}
		}
	}
	return nil
}

func result(h *schedule.Schedule, domain *terms, rank, chunk int, v term, written bool) error {
	from, to, in := wanted(h, rank, chunk)
	switch {
	case from == to && written:
		return errors.New("must stay as it was, but was written")
	case from == to:
		return nil
	case !written:
		return errUnwritten
	case int(v.chunk) != in:
		return fmt.Errorf("holds chunk %s instead of in[%d]", v.chunkName(), in)
	case h.Collective.Finishes() && !v.final:
		if what := domain.compare(v, domain.set(from, to)); what != "" {
			return errors.New(what)
		}
		return errUnfinished
	}
	if what := domain.compare(v, domain.set(from, to)); what != "" {
		return errors.New(what)
	}
	return nil
}

var (
	errUnwritten  = errors.New("was never written")
	errUnfinished = errors.New("is complete, but no step with Final finished it")
	errRefinished = errors.New("reduces or finishes a result that is already finished")
)

package direct

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// view says where a part's algorithm finds chunk i of one of its buffers in the whole. The chunks
// of a part that meet in one step have spans alike in number and lengths, on all its ranks.
type view func(i int) []schedule.Span

// linear is the view of chunks that lie one after the other, each made of scale chunks of b.
func linear(b schedule.Buf, first, scale int) view {
	return func(i int) []schedule.Span { return []schedule.Span{span(b, first+i*scale, scale)} }
}

// columns is the view of blocks that are each made of the blocks of several ranks: block i is those
// of ranks(i), in b, every block of a rank being scale chunks that hold perBlock chunks of the part.
func columns(b schedule.Buf, ranks func(block int) []int, perBlock, scale int) view {
	return func(i int) []schedule.Span {
		var spans []schedule.Span
		for _, r := range ranks(i / perBlock) {
			spans = append(spans, span(b, (r*perBlock+i%perBlock)*scale, scale))
		}
		return spans
	}
}

// phase is an algorithm that some of the ranks run as one phase of the whole.
type phase struct {
	schedule.Schedule
	ranks   []int // who takes part, as ranks of the whole
	in, out view
	linear  bool // both views are linear, so that a span stays one span
	final   bool // its final steps are final in the whole
	scratch [][]schedule.Span
}

// compose makes the phases of this rank, whose views are still to be set, and what all phases agree on.
func compose(shape schedule.Shape, uses ...use) (chunks int, p promises, phases []*phase, err error) {
	for _, u := range uses {
		s, err := u.alg(u.me, len(u.ranks), inner(shape, u.root))
		if err != nil {
			return 0, p, nil, fmt.Errorf("direct: part of %d ranks: %w", len(u.ranks), err)
		}
		if s.Collective != u.collective {
			return 0, p, nil, fmt.Errorf("direct: a part of %d ranks is for %v, not %v", len(u.ranks), s.Collective, u.collective)
		}
		phases = append(phases, &phase{Schedule: s, ranks: u.ranks})
	}
	chunks, p, err = agree(shape, uses)
	return chunks, p, phases, err
}

// inner is the shape of a part.
func inner(shape schedule.Shape, root int) schedule.Shape {
	return schedule.Shape{Root: root, Pieces: shape.Pieces, Radix: shape.Radix, Aggregate: shape.Aggregate}
}

// appendTo lets the rank run the phase after all that whole has done. The lanes of the phase's
// algorithm go one after the other on the only lane of the whole: their Afters look to lower lanes,
// as those of all algorithms of this library do, so that this order fulfils them. Lanes side by
// side would let the next window write to scratch memory that another lane still reads.
func (p *phase) appendTo(whole *schedule.Schedule) error {
	p.place(whole)
	if len(whole.Lanes) == 0 {
		whole.Lanes = make([]schedule.Lane, 1)
	}
	for l, groups := range schedule.Fuse(&p.Schedule) {
		for _, g := range groups {
			steps, err := p.translate(l, p.Lanes[l][g.First:g.End])
			if err != nil {
				return err
			}
			whole.Lanes[0] = append(whole.Lanes[0], steps...)
		}
	}
	return nil
}

// place gives the part's scratch memory a place in that of the whole.
func (p *phase) place(whole *schedule.Schedule) {
	for _, c := range p.Scratch {
		look := p.in
		if c.Buf == schedule.Out {
			look = p.out
		}
		var spans []schedule.Span
		for _, like := range look(c.Index) {
			spans = append(spans, span(schedule.Scratch, len(whole.Scratch), like.Count))
			whole.Scratch = append(whole.Scratch, sizes(whole, like)...)
		}
		p.scratch = append(p.scratch, spans)
	}
}

// sizes names chunks of In or Out that are as long as those of a span.
func sizes(whole *schedule.Schedule, sp schedule.Span) []schedule.Chunk {
	var cs []schedule.Chunk
	for i := sp.First; i < sp.First+sp.Count; i++ {
		if sp.Buf == schedule.Scratch {
			cs = append(cs, whole.Scratch[i])
		} else {
			cs = append(cs, schedule.Chunk{Buf: sp.Buf, Index: i})
		}
	}
	return cs
}

// translate makes the steps of the whole for a fused group of a lane: for every span in turn all
// steps of the group, so that it stays one group.
func (p *phase) translate(lane int, group schedule.Lane) ([]schedule.Step, error) {
	sources, targets := make([][]schedule.Span, len(group)), make([][]schedule.Span, len(group))
	n := 0
	for i := range group {
		sources[i], targets[i] = p.look(group[i].Src), p.look(group[i].Dst)
		n = max(n, len(sources[i]), len(targets[i]))
	}
	var steps []schedule.Step
	for k := range n {
		for i, st := range group {
			if st.Src.Count > 0 {
				st.Src = sources[i][k]
			}
			if st.Dst.Count > 0 {
				st.Dst = targets[i][k]
			}
			if st.After.Steps > 0 && st.After.Lane > lane {
				return nil, fmt.Errorf("direct: part of %d ranks: lane %d waits for lane %d", len(p.ranks), lane, st.After.Lane)
			}
			st.After = schedule.After{}
			st.Final = st.Final && p.final
			switch {
			case st.Op != schedule.Copy && st.Op != schedule.Combine:
				st.Peer = p.ranks[st.Peer]
			case st.Src == st.Dst && st.Op == schedule.Copy && !st.Final:
				continue // already there
			case st.Src == st.Dst:
				return nil, fmt.Errorf("direct: part of %d ranks: %v does not work in place", len(p.ranks), st)
			}
			steps = append(steps, st)
		}
	}
	return steps, nil
}

// look is where the chunks of a span of the part are.
func (p *phase) look(sp schedule.Span) []schedule.Span {
	at := func(i int) []schedule.Span {
		switch sp.Buf {
		case schedule.In:
			return p.in(i)
		case schedule.Out:
			return p.out(i)
		}
		return p.scratch[i]
	}
	if p.linear && sp.Count > 0 {
		one, last := at(sp.First)[0], at(sp.First + sp.Count - 1)[0]
		one.Count = last.First + last.Count - one.First
		return []schedule.Span{one}
	}
	var spans []schedule.Span
	for i := sp.First; i < sp.First+sp.Count; i++ {
		spans = append(spans, at(i)...)
	}
	return spans
}

// inTurn runs phases one after the other.
func inTurn(whole *schedule.Schedule, phases ...*phase) error {
	for _, p := range phases {
		if err := p.appendTo(whole); err != nil {
			return err
		}
	}
	return nil
}

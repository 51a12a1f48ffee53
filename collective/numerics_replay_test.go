package collective

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// replay runs the schedules of all ranks in one window on codes, group after group as
// [schedule.Fuse] forms reduction steps, on links without limit. ins[r] is In of rank r; outs[r]
// holds Out before and after.
func replay(ss []schedule.Schedule, a *arithmetic, ins, outs [][]uint64) error {
	ranks := make([]*replayed, len(ss))
	links := map[link3][][]uint64{}
	for r := range ss {
		ranks[r] = newReplayed(&ss[r], ins[r], outs[r])
	}
	for {
		moved, left := false, false
		for _, p := range ranks {
			for l := range p.groups {
				for p.at[l] < len(p.groups[l]) && p.enabled(l, links) {
					p.fire(l, a, links)
					p.at[l]++
					moved = true
				}
				left = left || p.at[l] < len(p.groups[l])
			}
		}
		if !left {
			return nil
		}
		if !moved {
			return fmt.Errorf("deadlock")
		}
	}
}

type link3 struct{ from, to, lane int }

// replayed is a rank: its chunks by buffer, and the next group of every lane.
type replayed struct {
	s      *schedule.Schedule
	mem    map[schedule.Buf][][]uint64
	groups [][]schedule.Group
	at     []int
}

func newReplayed(s *schedule.Schedule, in, out []uint64) *replayed {
	p := &replayed{s: s, groups: schedule.Fuse(s), at: make([]int, len(s.Lanes)), mem: map[schedule.Buf][][]uint64{}}
	inBlocks, outBlocks := s.Collective.Blocks(s.Rank, s.Size, s.Root)
	cut := func(buf []uint64, blocks, chunks int) (list [][]uint64) {
		for b := range blocks {
			block := buf[b*len(buf)/blocks : (b+1)*len(buf)/blocks]
			for i := range chunks / blocks {
				lo, hi := tensor.Part(len(block), chunks/blocks, i)
				list = append(list, block[lo:hi])
			}
		}
		return list
	}
	p.mem[schedule.In], p.mem[schedule.Out] = cut(in, inBlocks, s.In), cut(out, outBlocks, s.Out)
	for _, c := range s.Scratch {
		p.mem[schedule.Scratch] = append(p.mem[schedule.Scratch], make([]uint64, len(p.mem[c.Buf][c.Index])))
	}
	return p
}

func (p *replayed) enabled(l int, links map[link3][][]uint64) bool {
	g := p.groups[l][p.at[l]]
	if a := p.s.Lanes[l][g.First].After; a.Steps > 0 {
		done := 0
		if at := p.at[a.Lane]; at > 0 {
			done = p.groups[a.Lane][at-1].End
		}
		if done < a.Steps {
			return false
		}
	}
	for _, st := range p.s.Lanes[l][g.First:g.End] {
		if (st.Op == schedule.Recv || st.Op == schedule.RecvReduce) && len(links[link3{st.Peer, p.s.Rank, l}]) < st.Dst.Count {
			return false
		}
	}
	return true
}

func (p *replayed) fire(l int, a *arithmetic, links map[link3][][]uint64) {
	g := p.groups[l][p.at[l]]
	steps := p.s.Lanes[l][g.First:g.End]
	count := max(steps[0].Src.Count, steps[0].Dst.Count)
	for k := range count {
		var operands []operand
		put := func(x []uint64, left bool) {
			if left && len(operands) == 1 {
				operands = []operand{{x, false}, operands[0]}
				return
			}
			operands = append(operands, operand{x, left})
		}
		final := false
		for _, st := range steps {
			var got []uint64
			if st.Op == schedule.Recv || st.Op == schedule.RecvReduce {
				// Whole spans are in the queue, and this takes the k-th of what is left of them.
				key := link3{st.Peer, p.s.Rank, l}
				got, links[key] = links[key][0], links[key][1:]
			}
			final = final || st.Final
			switch st.Op {
			case schedule.Recv:
				put(got, false)
			case schedule.Copy:
				put(p.read(a, st.Src, k), false)
			case schedule.RecvReduce:
				if len(operands) == 0 {
					put(p.read(a, st.Src, k), false)
				}
				put(got, st.Left)
			case schedule.Combine:
				if len(operands) == 0 {
					put(p.read(a, st.Dst, k), false)
				}
				put(p.read(a, st.Src, k), st.Left)
			case schedule.Send:
				key := link3{p.s.Rank, st.Peer, l}
				if operands == nil {
					links[key] = append(links[key], p.read(a, st.Src, k))
					continue
				}
				links[key] = append(links[key], p.fold(a, operands, final))
			}
		}
		if operands != nil {
			copy(p.mem[g.Dst.Buf][g.Dst.First+k], p.fold(a, operands, final))
		}
	}
}

// read is what chunk k of a span holds; of In, scaled.
func (p *replayed) read(a *arithmetic, sp schedule.Span, k int) []uint64 {
	from := p.mem[sp.Buf][sp.First+k]
	x := make([]uint64, len(from))
	for i, v := range from {
		if x[i] = v; sp.Buf == schedule.In {
			x[i] = a.pre(p.s.Rank, v)
		}
	}
	return x
}

// operand is one of a reduction step; left says that it stands left of all before it.
type operand struct {
	x    []uint64
	left bool
}

// fold is the value of a reduction step: a fold from the left, or, if an operand stands left of a
// partial result, one reduction of two after the other.
func (p *replayed) fold(a *arithmetic, operands []operand, final bool) []uint64 {
	nested := slices.ContainsFunc(operands, func(o operand) bool { return o.left })
	out, xs := make([]uint64, len(operands[0].x)), make([]uint64, len(operands))
	for i := range out {
		for j := range operands {
			xs[j] = operands[j].x[i]
		}
		if out[i] = xs[0]; !nested {
			out[i] = a.fold(xs)
		}
		for j := 1; nested && j < len(xs); j++ {
			pair := []uint64{out[i], xs[j]}
			if operands[j].left {
				pair[0], pair[1] = pair[1], pair[0]
			}
			out[i] = a.fold(pair)
		}
		if final {
			out[i] = a.post(out[i])
		}
	}
	return out
}

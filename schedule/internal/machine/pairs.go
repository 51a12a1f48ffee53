package machine

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// Pairs checks that the k-th Send on every link meets a k-th receive with as many chunks, of equal
// sizes one by one.
func (p *Program) Pairs() error {
	for i := range p.Links {
		k := &p.Links[i]
		send, recv := k.firstSend, k.firstRecv
		for send >= 0 && recv >= 0 {
			a, b := &p.Lanes[k.producer].Steps[send], &p.Lanes[k.consumer].Steps[recv]
			if a.Count != b.Count {
				return fmt.Errorf("%s carries %d chunks to %s, which takes %d",
					p.Where(k.producer, send), a.Count, p.Where(k.consumer, recv), b.Count)
			}
			for u := range a.Count {
				x, y := p.class(k.From, a.SrcBuf, a.Src+u), p.class(k.To, b.DstBuf, b.Dst+u)
				if x != y {
					return fmt.Errorf("%s carries a chunk %d of a block to %s, which takes a chunk %d: their sizes may differ",
						p.Where(k.producer, send), x, p.Where(k.consumer, recv), y)
				}
			}
			send, recv = a.next, b.next
		}
		switch {
		case send >= 0:
			return fmt.Errorf("%s: no receive at rank %d", p.Where(k.producer, send), k.To)
		case recv >= 0:
			return fmt.Errorf("%s: no send at rank %d", p.Where(k.consumer, recv), k.From)
		}
	}
	return nil
}

// class is the place of a chunk in its block.
func (p *Program) class(rank int32, b schedule.Buf, i int32) int {
	turn := 0
	if p.symmetric {
		rank, turn = 0, int(rank)
	}
	h := &p.Heads[rank]
	c := int(i)
	if b == schedule.Scratch {
		b, c = h.Scratch[i].Buf, h.Scratch[i].Index
	}
	return Turn(h, b, c, turn) % h.PerBlock()
}

// Uneven tells whether all steps keep to their blocks, so that every block may have a length of
// its own: of two chunks that are copied, reduced or sent into each other, both belong to the same
// block of the whole (see owner).
func (p *Program) Uneven() bool {
	for l := range p.Lanes {
		r := int32(p.Lanes[l].Rank)
		for i := range p.Lanes[l].Steps {
			st := &p.Lanes[l].Steps[i]
			if st.SrcBuf == schedule.None || st.DstBuf == schedule.None {
				continue
			}
			for u := range st.Count {
				if p.owner(r, st.SrcBuf, st.Src+u) != p.owner(r, st.DstBuf, st.Dst+u) {
					return false
				}
			}
		}
	}
	for i := range p.Links {
		k := &p.Links[i]
		for send, recv := k.firstSend, k.firstRecv; send >= 0; {
			a, b := &p.Lanes[k.producer].Steps[send], &p.Lanes[k.consumer].Steps[recv]
			for u := range a.Count {
				if p.owner(k.From, a.SrcBuf, a.Src+u) != p.owner(k.To, b.DstBuf, b.Dst+u) {
					return false
				}
			}
			send, recv = a.next, b.next
		}
	}
	return true
}

// owner names the block that a chunk of a rank belongs to, as a pair of ranks: whose data it is,
// and for whom. One of them is −1 where the collective does not tell apart.
func (p *Program) owner(rank int32, b schedule.Buf, i int32) [2]int32 {
	h := &p.Heads[rank]
	if b == schedule.Scratch {
		c := h.Scratch[i]
		b, i = c.Buf, int32(c.Index)
	}
	block := i / int32(h.PerBlock())
	if b == schedule.In {
		switch h.Collective {
		case schedule.AllGather, schedule.Gather:
			return [2]int32{rank, -1}
		case schedule.ReduceScatter, schedule.Scatter:
			return [2]int32{-1, block}
		case schedule.AllToAll:
			return [2]int32{rank, block}
		}
		return [2]int32{-1, -1}
	}
	switch h.Collective {
	case schedule.AllGather, schedule.Gather:
		return [2]int32{block, -1}
	case schedule.ReduceScatter, schedule.Scatter:
		return [2]int32{-1, rank}
	case schedule.AllToAll:
		return [2]int32{block, rank}
	}
	return [2]int32{-1, -1}
}

// Streams tells whether any streamed group of several steps moves more than one chunk: elsewhere
// the chunks of a run move in the same order whether it is fused or not.
func (p *Program) Streams() bool {
	for l := range p.Lanes {
		first := int32(0)
		for _, end := range p.Lanes[l].groups {
			if end > first+1 && p.Lanes[l].Steps[first].Count > 1 {
				return true
			}
			first = end
		}
	}
	return false
}

// Groups tells whether any streamed group has several steps: elsewhere a fused run is a plain one.
func (p *Program) Groups() bool {
	for l := range p.Lanes {
		if len(p.Lanes[l].groups) < len(p.Lanes[l].Steps) {
			return true
		}
	}
	return false
}

package simulate

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/schedule"
)

// maxNeighbours bounds the work of finding out whether ranks are alike.
const maxNeighbours = 64

// sampled is of how many neighbours of a block the neighbours are looked at, too.
const sampled = 8

// symmetric makes a program of a few ranks that takes as long as that of all, or nil if the ranks differ
// or would take too long to compare: of rank 0 alone, or of the ranks of one host.
//
// Suppose that rank r does what rank r mod g does, for blocks of g ranks: the same operations in the same
// order over the same kinds of links; that blocks share nothing but the links; and that what a rank
// sends in its step i is received in a step of the peer that depends on the places in the blocks alone.
// Then the ranks of every block live through the same times: at the start it is so, and what arrives
// from another block left there when this block's own rank of the same place sent. So a block may
// receive from itself.
func symmetric(alg schedule.Algorithm, size int, shape schedule.Shape, p *Params) (*program, error) {
	if size < 3 || p.SwitchBandwidth > 0 {
		return nil, nil
	}
	all := map[int]*schedule.Schedule{}
	known := func(rank int) (*schedule.Schedule, error) {
		if s, ok := all[rank]; ok {
			return s, nil
		}
		s, err := alg(rank, size, shape)
		if err != nil {
			return nil, fmt.Errorf("simulate: rank %d: %w", rank, err)
		}
		all[rank] = &s
		return &s, nil
	}
	if p.HostBandwidth == 0 {
		if prog, err := block(1, size, known, p); prog != nil || err != nil {
			return prog, err
		}
	}
	if g := p.perHost(size); g > 1 && g < size && g <= maxNeighbours {
		return block(g, size, known, p)
	}
	return nil, nil
}

// perHost is the number of ranks of every host, if all have as many and they are neighbours; else 0.
func (p *Params) perHost(size int) int {
	if p.Hosts == nil {
		return 1
	}
	g := 1
	for g < size && p.Hosts[g] == p.Hosts[0] {
		g++
	}
	for r := range size {
		if size%g != 0 || p.Hosts[r] != p.Hosts[r/g*g] || r >= g && r%g == 0 && p.Hosts[r] == p.Hosts[r-1] {
			return 0
		}
	}
	return g
}

// block makes the program of ranks 0 to g−1 that stand for all, or nil.
func block(g, size int, known func(rank int) (*schedule.Schedule, error), p *Params) (*program, error) {
	reps, matches := make([]*schedule.Schedule, g), make([][][]int, g)
	var near []int
	for r := range g {
		s, err := known(r)
		if err != nil {
			return nil, err
		}
		reps[r] = s
		list := neighbours(s)
		if len(list) > maxNeighbours {
			return nil, nil
		}
		near = append(near, list...)
	}
	for r, s := range reps {
		m, err := matching(s, known)
		if err != nil || m == nil || !inOrder(s, m, reps) {
			return nil, err
		}
		matches[r] = m
	}
	slices.Sort(near)
	near = slices.Compact(near)
	for i, r := range near {
		if r < g {
			continue
		}
		s, err := known(r)
		if err != nil {
			return nil, err
		}
		if !same(reps[r%g], s, p) {
			return nil, nil
		}
		if g > 1 && i%(1+len(near)/sampled) != 0 {
			continue // its neighbours are many
		}
		other, err := matching(s, known)
		if err != nil {
			return nil, err
		}
		if !slices.EqualFunc(matches[r%g], other, slices.Equal) {
			return nil, nil
		}
	}
	return fold(reps, matches, p), nil
}

// fold is the program of a block that receives from itself: a link is what one rank sends to one peer,
// and what the peer's place receives in the matching steps is on it. It is nil if a step receives
// what nobody sends.
func fold(reps []*schedule.Schedule, matches [][][]int, p *Params) *program {
	g := len(reps)
	prog := &program{ranks: g}
	base := make([]int32, g+1) // first lane of each rank
	receives := make([][][]int32, g)
	for r, s := range reps {
		base[r+1] = base[r] + int32(len(s.Lanes))
		receives[r] = make([][]int32, len(s.Lanes))
		for l := range s.Lanes {
			receives[r][l] = slices.Repeat([]int32{-1}, len(s.Lanes[l]))
		}
	}
	type way struct{ from, lane, peer int }
	links := make(map[way]int32)
	for r, s := range reps {
		for l, lane := range s.Lanes {
			for i, st := range lane {
				if st.Op != schedule.Send {
					continue
				}
				w, to := way{r, l, st.Peer}, st.Peer%g
				id, ok := links[w]
				if !ok {
					id = int32(len(prog.links))
					links[w] = id
					prog.links = append(prog.links, link{from: int32(r), to: int32(to), producer: base[r] + int32(l), consumer: base[to] + int32(l), local: p.local(r, st.Peer)})
				}
				receives[to][l][matches[r][l][i]] = id
			}
		}
	}
	missing := false
	for r, s := range reps {
		next := make([]int, len(s.Lanes))
		prog.add(s, int32(r), func(l int32, st *schedule.Step) int32 {
			if st.Op == schedule.Send {
				return links[way{r, int(l), st.Peer}]
			}
			i := next[l]
			for !s.Lanes[l][i].Op.Receives() {
				i++
			}
			next[l] = i + 1
			missing = missing || receives[r][l][i] < 0
			return receives[r][l][i]
		})
	}
	if missing {
		return nil
	}
	return prog
}

// neighbours lists the ranks that a schedule names.
func neighbours(s *schedule.Schedule) []int {
	seen := make(map[int]bool)
	var list []int
	for _, lane := range s.Lanes {
		for _, st := range lane {
			if (st.Op == schedule.Send || st.Op.Receives()) && !seen[st.Peer] {
				seen[st.Peer] = true
				list = append(list, st.Peer)
			}
		}
	}
	return list
}

// matching finds for every Send of s, by lane and step, the number of the step that receives it in
// the same lane of the peer; −1 for other steps. It is nil if a Send has none that s has, too.
func matching(s *schedule.Schedule, of func(rank int) (*schedule.Schedule, error)) ([][]int, error) {
	m := make([][]int, len(s.Lanes))
	type way struct{ lane, peer int }
	receives := make(map[way][]int)
	sent := make(map[way]int)
	for l, lane := range s.Lanes {
		m[l] = make([]int, len(lane))
		for i, st := range lane {
			m[l][i] = -1
			if st.Op != schedule.Send {
				continue
			}
			w := way{l, st.Peer}
			if _, ok := receives[w]; !ok {
				peer, err := of(st.Peer)
				if err != nil {
					return nil, err
				}
				receives[w] = []int{}
				if l < len(peer.Lanes) {
					for j, other := range peer.Lanes[l] {
						if other.Op.Receives() && other.Peer == s.Rank {
							receives[w] = append(receives[w], j)
						}
					}
				}
			}
			k := sent[w]
			if k >= len(receives[w]) {
				return nil, nil
			}
			m[l][i] = receives[w][k]
			sent[w] = k + 1
		}
	}
	return m, nil
}

// same tells whether two ranks have the same operations, over links of the same kinds, spans apart
// from their places.
func same(a, b *schedule.Schedule, p *Params) bool {
	if len(a.Lanes) != len(b.Lanes) || a.In != b.In || a.Out != b.Out {
		return false
	}
	ga, gb := schedule.Fuse(a), schedule.Fuse(b)
	for l := range a.Lanes {
		if len(a.Lanes[l]) != len(b.Lanes[l]) || len(ga[l]) != len(gb[l]) {
			return false
		}
		for g := range ga[l] {
			if ga[l][g].End != gb[l][g].End {
				return false
			}
		}
		for i := range a.Lanes[l] {
			x, y := &a.Lanes[l][i], &b.Lanes[l][i]
			if x.Op != y.Op || x.After != y.After || x.Src.Count != y.Src.Count || x.Dst.Count != y.Dst.Count {
				return false
			}
			if (x.Op == schedule.Send || x.Op.Receives()) && p.local(a.Rank, x.Peer) != p.local(b.Rank, y.Peer) {
				return false
			}
		}
	}
	return true
}

// inOrder tells whether the Sends to one peer are received in the order of their steps by the peer's
// place in the block, so that they may share a link, and all by the steps that name one source.
func inOrder(s *schedule.Schedule, matches [][]int, reps []*schedule.Schedule) bool {
	type way struct{ lane, peer int }
	source, last := make(map[way]int), make(map[way]int)
	for l, lane := range s.Lanes {
		for i, st := range lane {
			if st.Op != schedule.Send {
				continue
			}
			w, at, peer := way{l, st.Peer}, matches[l][i], reps[st.Peer%len(reps)]
			if l >= len(peer.Lanes) || at >= len(peer.Lanes[l]) || !peer.Lanes[l][at].Op.Receives() {
				return false
			}
			from := peer.Lanes[l][at].Peer
			if from%len(reps) != s.Rank {
				return false
			}
			if old, ok := source[w]; ok && (old != from || at <= last[w]) {
				return false
			}
			source[w], last[w] = from, at
		}
	}
	return true
}

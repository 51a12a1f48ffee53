package simulate

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/schedule"
)

// maxNeighbours bounds the work of finding out whether ranks are alike.
const maxNeighbours = 64

// symmetric makes a program of rank 0 alone that takes as long as that of all ranks, or nil if the
// ranks differ or would take too long to compare.
//
// Suppose that all ranks have the same operations in the same order over the same kinds of links,
// that they share nothing but their own ports, and that what any rank sends in its step i is
// received in step m(i) of the peer. Then every rank lives through the same times: at the start it is so, and what arrives at a rank for step m(i)
// left its sender when this rank's own step i left here. So each rank may receive from itself.
func symmetric(alg schedule.Algorithm, size int, shape schedule.Shape, p *Params) (*program, error) {
	if size < 3 || p.HostBandwidth > 0 || p.SwitchBandwidth > 0 {
		return nil, nil
	}
	zero, err := alg(0, size, shape)
	if err != nil {
		return nil, fmt.Errorf("simulate: rank 0: %w", err)
	}
	near := neighbours(&zero)
	if len(near) > maxNeighbours {
		return nil, nil
	}
	all := map[int]*schedule.Schedule{0: &zero}
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
	matches, err := matching(&zero, known)
	if err != nil || matches == nil || !inOrder(&zero, matches) {
		return nil, err
	}
	for _, r := range near {
		s, err := known(r)
		if err != nil {
			return nil, err
		}
		if len(s.Lanes) > 0 && len(neighbours(s)) != len(near) {
			return nil, nil
		}
		other, err := matching(s, func(rank int) (*schedule.Schedule, error) {
			if t, ok := all[rank]; ok {
				return t, nil
			}
			t, err := alg(rank, size, shape)
			return &t, err
		})
		if err != nil {
			return nil, err
		}
		if !same(&zero, s, p) || !slices.EqualFunc(matches, other, slices.Equal) {
			return nil, nil
		}
	}
	// A link of the program is what rank 0 sends to one peer; what it receives in step m(i) is on
	// the link of step i.
	prog := &program{ranks: 1}
	links := make(map[[2]int]int32)
	receives := make([][]int32, len(zero.Lanes)) // the link of each step that receives, −1
	for l, lane := range zero.Lanes {
		receives[l] = make([]int32, len(lane))
		for i := range lane {
			receives[l][i] = -1
		}
	}
	for l, lane := range zero.Lanes {
		for i, st := range lane {
			if st.Op == schedule.Send {
				key := [2]int{l, st.Peer}
				id, ok := links[key]
				if !ok {
					id = int32(len(prog.links))
					links[key] = id
					prog.links = append(prog.links, link{producer: int32(l), consumer: int32(l), local: p.local(0, st.Peer)})
				}
				receives[l][matches[l][i]] = id
			}
		}
	}
	next := make([]int, len(zero.Lanes))
	missing := false
	prog.add(&zero, 0, func(l int32, st *schedule.Step) int32 {
		if st.Op == schedule.Send {
			return links[[2]int{int(l), st.Peer}]
		}
		i := next[l]
		for !zero.Lanes[l][i].Op.Receives() {
			i++
		}
		next[l] = i + 1
		missing = missing || receives[l][i] < 0
		return receives[l][i]
	})
	if missing {
		return nil, nil
	}
	return prog, nil
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
			if k >= len(receives[w]) || receives[w][k] >= len(lane) {
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

// inOrder tells whether the Sends to one peer are received in the order of their steps, so that
// they may share a link, and all by the steps that name one source.
func inOrder(s *schedule.Schedule, matches [][]int) bool {
	type way struct{ lane, peer int }
	source, last := make(map[way]int), make(map[way]int)
	for l, lane := range s.Lanes {
		for i, st := range lane {
			if st.Op != schedule.Send {
				continue
			}
			w, at := way{l, st.Peer}, matches[l][i]
			from := lane[at].Peer
			if !lane[at].Op.Receives() {
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

package simulate

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// program is the schedules of all ranks, or of the one that stands for all, without what time does
// not depend on.
type program struct {
	ranks  int
	lanes  []lane
	links  []link
	chunks int // of the longest In or Out
	ahead  int
}

type lane struct {
	rank, index int32
	steps       []step
	groups      []int32 // ends
	waiters     []int32 // lanes with a step that waits for this one
}

type step struct {
	op         schedule.Op
	count      int32
	link       int32 // −1: local
	afterLane  int32
	afterSteps int32 // 0: none
}

// link is one way from a lane to a lane.
type link struct {
	from, to           int32 // ranks
	producer, consumer int32 // lanes
	local              bool  // inside a host
}

// compile makes the program of all ranks.
func compile(alg schedule.Algorithm, size int, shape schedule.Shape, p *Params) (*program, error) {
	prog := &program{ranks: size}
	ids := make(map[[3]int32]int32)
	first := make([]int32, size+1)
	for r := range size {
		s, err := alg(r, size, shape)
		if err != nil {
			return nil, fmt.Errorf("simulate: rank %d: %w", r, err)
		}
		first[r] = int32(len(prog.lanes))
		prog.add(&s, int32(r), func(lane int32, st *schedule.Step) int32 {
			key := [3]int32{int32(r), int32(st.Peer), lane}
			if st.Op != schedule.Send {
				key[0], key[1] = key[1], key[0]
			}
			id, ok := ids[key]
			if !ok {
				id = int32(len(prog.links))
				ids[key] = id
				prog.links = append(prog.links, link{from: key[0], to: key[1], producer: lane, local: p.local(r, st.Peer)})
			}
			return id
		})
	}
	first[size] = int32(len(prog.lanes))
	for i := range prog.links {
		k := &prog.links[i]
		l := k.producer // its number in its rank until now
		k.producer, k.consumer = first[k.from]+l, first[k.to]+l
		if k.producer >= first[k.from+1] || k.consumer >= first[k.to+1] {
			return nil, fmt.Errorf("simulate: %d sends to %d on lane %d, which one of them does not have", k.from, k.to, l)
		}
	}
	return prog, nil
}

// add appends a rank's lanes.
func (prog *program) add(s *schedule.Schedule, rank int32, linkOf func(lane int32, st *schedule.Step) int32) {
	base := int32(len(prog.lanes))
	for l, groups := range schedule.Fuse(s) {
		ln := lane{rank: rank, index: int32(l)}
		for _, g := range groups {
			ln.groups = append(ln.groups, int32(g.End))
		}
		ln.steps = make([]step, len(s.Lanes[l]))
		for i := range s.Lanes[l] {
			st := &s.Lanes[l][i]
			ln.steps[i] = step{
				op: st.Op, count: int32(max(st.Src.Count, st.Dst.Count)), link: -1,
				afterLane: base + int32(st.After.Lane), afterSteps: int32(st.After.Steps),
			}
			if st.Op == schedule.Send || st.Op.Receives() {
				ln.steps[i].link = linkOf(int32(l), st)
			}
		}
		prog.lanes = append(prog.lanes, ln)
	}
	for l := base; l < int32(len(prog.lanes)); l++ {
		for _, st := range prog.lanes[l].steps {
			if st.afterSteps > 0 {
				w := &prog.lanes[st.afterLane].waiters
				if len(*w) == 0 || (*w)[len(*w)-1] != l {
					*w = append(*w, l)
				}
			}
		}
	}
	prog.chunks = max(prog.chunks, s.In, s.Out)
	prog.ahead = s.Ahead
}

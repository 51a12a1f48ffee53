// Package machine runs the schedules of all ranks together, on links of a given number of slots,
// with one scheduler and several number systems.
//
// A [Program] is the schedules of all ranks, with their links resolved. [Run] moves it forward
// greedily: any step that can go on does. Since no step ever disables another (there is no
// wildcard receive, no racing on a link, no time limit), every greedy run ends in the same state
// with the same values (Kahn, "The semantics of a simple language for parallel programming", IFIP
// 1974), and one run decides whether a deadlock is possible (marked graphs: Commoner, Holt, Even
// and Pnueli, J. Comput. Syst. Sci. 5, 1971). What a run computes is up to its handlers: [Values]
// over any domain, [Order] for who may touch what when, [Cost].
package machine

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// Step is a schedule.Step with its link resolved, in 40 bytes.
type Step struct {
	Op          schedule.Op
	Left, Final bool
	more        bool // the next step goes on with the same n-ary step (schedule.Lane)
	SrcBuf      schedule.Buf
	DstBuf      schedule.Buf
	Src, Dst    int32 // first chunks
	Count       int32
	Link        int32 // −1 for local steps
	next        int32 // the next step of this lane on the same link, or −1
	AfterLane   int32 // index in Program.Lanes
	AfterSteps  int32 // 0: waits for nothing
}

// Lane is one lane of one rank.
type Lane struct {
	Rank, Index int
	Steps       []Step
	groups      []int32 // ends of the fused groups
	waiters     []int32 // lanes with an After on this one
}

// Link is the one-way connection of two ranks in one lane.
type Link struct {
	From, To            int32 // ranks
	producer, consumer  int32 // lanes; −1: that rank has no such lane
	firstSend, lastSend int32 // steps; −1: none
	firstRecv, lastRecv int32
	base                int32 // chunks that the links before this one carry in a window
}

// Program is the schedules of all ranks. It does not change once made; any number of runs may use
// it at once.
type Program struct {
	Heads []schedule.Schedule // one per rank, without their lanes
	Lanes []Lane
	Links []Link
	first []int32 // first[r] is the index of rank r's lane 0; first[size] = len(Lanes)
	sent  int32   // chunks that all links carry in a window
	// symmetric: rank 0 stands for all, and the link to rank d is also the one from rank −d.
	symmetric bool
}

// New takes the schedules of the ranks 0…size−1 from next, one after the other, and keeps none of
// their lanes. They must be valid, of one collective, size and root.
func New(size int, next func(rank int) (schedule.Schedule, error)) (*Program, error) {
	if size < 1 {
		return nil, fmt.Errorf("%d ranks", size)
	}
	p := &Program{Heads: make([]schedule.Schedule, size), first: make([]int32, size+1)}
	links := make(map[[3]int32]int32) // from, to, lane
	ends := newEnds(size)
	for r := range size {
		s, err := next(r)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if err := p.head(r, size, &s); err != nil {
			return nil, err
		}
		p.add(r, &s, links, ends)
	}
	p.resolve()
	return p, nil
}

// add compiles the lanes of a rank.
func (p *Program) add(r int, s *schedule.Schedule, links map[[3]int32]int32, ends *ends) {
	p.first[r] = int32(len(p.Lanes))
	groups := schedule.Fuse(s)
	for l := range s.Lanes {
		lane := Lane{Rank: r, Index: l, groups: make([]int32, len(groups[l]))}
		for i, g := range groups[l] {
			lane.groups[i] = int32(g.End)
		}
		ends.reset()
		lane.Steps = p.compile(s.Lanes[l], r, l, links, ends)
		for _, g := range groups[l] {
			for i := g.First; i+1 < g.End; i++ {
				lane.Steps[i].more = lane.Steps[i+1].DstBuf != schedule.None
			}
		}
		p.Lanes = append(p.Lanes, lane)
	}
	p.first[r+1] = int32(len(p.Lanes))
}

func (p *Program) head(r, size int, s *schedule.Schedule) error {
	if err := s.Validate(); err != nil {
		return err
	}
	h := *s
	h.Lanes = nil
	p.Heads[r] = h
	a := &p.Heads[0]
	switch {
	case s.Rank != r || s.Size != size:
		return fmt.Errorf("rank %d of %d: the schedule is for rank %d of %d", r, size, s.Rank, s.Size)
	case s.Collective != a.Collective || s.Root != a.Root:
		return fmt.Errorf("rank %d: %v root %d, but rank 0 has %v root %d", r, s.Collective, s.Root, a.Collective, a.Root)
	case s.PerBlock() != a.PerBlock():
		return fmt.Errorf("rank %d: %d chunks a block, but rank 0 has %d", r, s.PerBlock(), a.PerBlock())
	case s.Ahead != a.Ahead || s.Early != a.Early || s.Lazy != a.Lazy || s.Disjoint != a.Disjoint:
		return fmt.Errorf("rank %d: ahead %d early %t lazy %t disjoint %t, but rank 0 has %d %t %t %t",
			r, s.Ahead, s.Early, s.Lazy, s.Disjoint, a.Ahead, a.Early, a.Lazy, a.Disjoint)
	}
	return nil
}

// ends finds the link to and from each peer while one lane is compiled, without a map.
type ends struct {
	link  [2][]int32 // 0: to the peer, 1: from it
	stamp [2][]int32
	now   int32
}

func newEnds(size int) *ends {
	e := &ends{}
	for i := range e.link {
		e.link[i], e.stamp[i] = make([]int32, size), make([]int32, size)
	}
	return e
}

func (e *ends) reset() { e.now++ }

func (p *Program) compile(lane schedule.Lane, r, l int, links map[[3]int32]int32, e *ends) []Step {
	steps := make([]Step, len(lane))
	for i := range lane {
		st := &lane[i]
		steps[i] = Step{
			Op: st.Op, Left: st.Left, Final: st.Final,
			SrcBuf: st.Src.Buf, Src: int32(st.Src.First), DstBuf: st.Dst.Buf, Dst: int32(st.Dst.First),
			Count: int32(max(st.Src.Count, st.Dst.Count)), Link: -1, next: -1,
			AfterLane: p.first[r] + int32(st.After.Lane), AfterSteps: int32(st.After.Steps),
		}
		if st.Op == schedule.Copy || st.Op == schedule.Combine {
			continue
		}
		dir, key := 0, [3]int32{int32(r), int32(st.Peer), int32(l)}
		if st.Op.Receives() {
			dir, key = 1, [3]int32{int32(st.Peer), int32(r), int32(l)}
			if p.symmetric {
				key = [3]int32{0, int32(p.opposite(st.Peer)), int32(l)}
			}
		}
		if e.stamp[dir][st.Peer] != e.now {
			id, ok := links[key]
			if !ok {
				id = int32(len(p.Links))
				links[key] = id
				p.Links = append(p.Links, Link{From: key[0], To: key[1], producer: -1, consumer: key[2],
					firstSend: -1, lastSend: -1, firstRecv: -1, lastRecv: -1})
			}
			e.stamp[dir][st.Peer], e.link[dir][st.Peer] = e.now, id
		}
		id := e.link[dir][st.Peer]
		steps[i].Link = id
		first, last := &p.Links[id].firstSend, &p.Links[id].lastSend
		if dir == 1 {
			first, last = &p.Links[id].firstRecv, &p.Links[id].lastRecv
		}
		if *first < 0 {
			*first = int32(i)
		} else {
			steps[*last].next = int32(i)
		}
		*last = int32(i)
	}
	return steps
}

// resolve finds the lanes at the two ends of every link, and who waits for whom inside a rank.
func (p *Program) resolve() {
	at := func(rank, lane int32) int32 {
		if i := p.first[rank] + lane; i < p.first[rank+1] {
			return i
		}
		return -1
	}
	for i := range p.Links {
		k := &p.Links[i]
		lane := k.consumer // its number until now
		k.producer, k.consumer = at(k.From, lane), at(k.From, lane)
		if !p.symmetric {
			k.consumer = at(k.To, lane)
		}
		k.base = p.sent
		for i := k.firstSend; i >= 0; {
			st := &p.Lanes[k.producer].Steps[i]
			p.sent += st.Count
			i = st.next
		}
	}
	for l := range p.Lanes {
		for i := range p.Lanes[l].Steps {
			if st := &p.Lanes[l].Steps[i]; st.AfterSteps > 0 {
				w := &p.Lanes[st.AfterLane].waiters
				if len(*w) == 0 || (*w)[len(*w)-1] != int32(l) {
					*w = append(*w, int32(l))
				}
			}
		}
	}
}

// Where names a step of a lane: "rank 2 lane 0 step 5 (recv out[3] from 1)".
func (p *Program) Where(lane, step int32) string {
	l := &p.Lanes[lane]
	return fmt.Sprintf("rank %d lane %d step %d (%v)", l.Rank, l.Index, step, p.source(lane, step))
}

// source is the step as it was in the schedule.
func (p *Program) source(lane, step int32) schedule.Step {
	st := &p.Lanes[lane].Steps[step]
	s := schedule.Step{Op: st.Op, Left: st.Left, Final: st.Final}
	if st.SrcBuf != schedule.None {
		s.Src = schedule.Span{Buf: st.SrcBuf, First: int(st.Src), Count: int(st.Count)}
	}
	if st.DstBuf != schedule.None {
		s.Dst = schedule.Span{Buf: st.DstBuf, First: int(st.Dst), Count: int(st.Count)}
	}
	if st.Link >= 0 {
		k := &p.Links[st.Link]
		s.Peer = int(k.From)
		if st.Op == schedule.Send {
			s.Peer = int(k.To)
		} else if p.symmetric {
			s.Peer = p.opposite(int(k.To))
		}
	}
	if st.AfterSteps > 0 {
		s.After = schedule.After{Lane: int(st.AfterLane - p.first[p.Lanes[lane].Rank]), Steps: int(st.AfterSteps)}
	}
	return s
}

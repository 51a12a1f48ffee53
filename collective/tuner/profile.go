package tuner

import (
	"slices"

	"github.com/gccl/gccl/schedule"
)

// profile is what a schedule costs in one window, in whole numbers: the most of any rank looked at.
type profile struct {
	steps, netSteps int // messages on the longest chain; those of them between hosts
	messages        int // sends and receives
	netMessages     int
	sent, received  int // chunks
	netSent, netGot int // chunks to and from other hosts
	netTo           int // ranks on other hosts that a rank sends to
	reduced, copied int // chunks combined, copied locally
	chunks          int // of the longest In or Out
	lanes           int
	ahead           int
	lazy            bool
	nary, pairwise  bool // see rounding
}

// profiled is how many ranks are looked at beyond a size where all are.
const profiled = 64

// profileOf looks at the schedules of all ranks, or of some where there are many. Root is 0: the choice
// does not depend on it.
func profileOf(in *schedule.Info, size int, shape schedule.Shape) (profile, error) {
	shape.Root = 0
	p := profile{nary: true, pairwise: true}
	stride := max(1, size/profiled)
	for r := 0; r < size; r += stride {
		s, err := in.Make(r, size, shape)
		if err != nil {
			return p, err
		}
		p.add(&s, shape.Hosts)
	}
	p.steps = in.Cost(size, shape).Steps
	p.netSteps = netSteps(in, size, shape, &p)
	return p, nil
}

func (p *profile) add(s *schedule.Schedule, hosts []int) {
	var q profile
	var to []int
	for _, lane := range s.Lanes {
		for _, st := range lane {
			net := hosts != nil && st.Op <= schedule.RecvReduce && hosts[st.Peer] != hosts[s.Rank]
			switch st.Op {
			case schedule.Send:
				q.messages++
				q.sent += st.Src.Count
			case schedule.Recv:
				q.messages++
				q.received += st.Dst.Count
			case schedule.RecvReduce:
				q.messages++
				q.received += st.Dst.Count
				q.reduced += st.Dst.Count
			case schedule.Copy:
				q.copied += st.Dst.Count
			case schedule.Combine:
				q.reduced += st.Dst.Count
			}
			if net {
				q.netMessages++
				q.netSent += st.Src.Count * btoi(st.Op == schedule.Send)
				q.netGot += st.Dst.Count
				if st.Op == schedule.Send && !slices.Contains(to, st.Peer) {
					to = append(to, st.Peer)
				}
			}
		}
	}
	p.messages, p.netMessages = max(p.messages, q.messages), max(p.netMessages, q.netMessages)
	p.sent, p.received = max(p.sent, q.sent), max(p.received, q.received)
	p.netSent, p.netGot = max(p.netSent, q.netSent), max(p.netGot, q.netGot)
	p.netTo = max(p.netTo, len(to))
	p.reduced, p.copied = max(p.reduced, q.reduced), max(p.copied, q.copied)
	p.chunks = max(p.chunks, s.In, s.Out)
	p.lanes = max(p.lanes, len(s.Lanes))
	p.ahead, p.lazy = s.Ahead, s.Lazy
	p.rounding(s)
}

// rounding finds out where an element type that rounds once per reduction step rounds: nary says that
// every result is made in one step, pairwise that every step has two operands. All algorithms of a
// collective that are Canonical and nary give the same bits in such types, and all that are Canonical
// and pairwise.
func (p *profile) rounding(s *schedule.Schedule) {
	if !s.Collective.Reduces() {
		return
	}
	whole := s.Size - 1
	switch s.Collective {
	case schedule.Scan:
		whole = s.Rank
	case schedule.Exscan:
		whole = s.Rank - 1
	}
	for l, groups := range schedule.Fuse(s) {
		for _, g := range groups {
			n := 0
			for _, st := range s.Lanes[l][g.First:g.End] {
				n += btoi(st.Op == schedule.RecvReduce || st.Op == schedule.Combine)
			}
			p.nary = p.nary && (n == 0 || n == whole)
			p.pairwise = p.pairwise && n <= 1
		}
	}
}

// netSteps is how many of the messages on the longest chain go between hosts. Algorithms whose cost
// depends on who shares a host have as many as they would have with one rank per host; of the others
// it is the share of their messages that do.
func netSteps(in *schedule.Info, size int, shape schedule.Shape, p *profile) int {
	if shape.Hosts == nil || p.messages == 0 {
		return 0
	}
	if TwoLevel(in) {
		hosts := 0
		for _, h := range shape.Hosts {
			hosts = max(hosts, h+1)
		}
		one := schedule.Shape{Hosts: make([]int, hosts)}
		for h := range hosts {
			one.Hosts[h] = h
		}
		return min(p.steps, in.Cost(hosts, one).Steps)
	}
	return (p.steps*p.netMessages + p.messages - 1) / p.messages
}

// TwoLevel tells whether the algorithm goes by who shares a host: whether it costs something else on
// one host than on as many hosts as ranks.
func TwoLevel(in *schedule.Info) bool {
	const size = 8
	apart := schedule.Shape{Hosts: make([]int, size)}
	for r := range size {
		apart.Hosts[r] = r
	}
	return in.Cost(size, schedule.Shape{Hosts: make([]int, size)}) != in.Cost(size, apart)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

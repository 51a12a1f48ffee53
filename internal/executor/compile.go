package executor

import "github.com/gccl/gccl/schedule"

// operand is one source of a group: what is received from a peer, or a local span.
type operand struct {
	recv bool
	left bool // stands left of everything before it in the list
	peer int
	span schedule.Span
}

// group is a compiled schedule.Group: operands folded from the left into dst, in order, and the sends
// of the result. A lone Send has no dst.
type group struct {
	schedule.Group
	operands []operand
	sends    []int // peers
	after    schedule.After
	final    bool
}

// Program is a compiled schedule. It is immutable.
type Program struct {
	Schedule schedule.Schedule
	lanes    [][]group
}

// Compile checks and fuses a schedule.
func Compile(s schedule.Schedule) (*Program, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Program{Schedule: s, lanes: make([][]group, len(s.Lanes))}
	for l, groups := range schedule.Fuse(&s) {
		for _, sg := range groups {
			g := group{Group: sg, after: s.Lanes[l][sg.First].After}
			for i := sg.First; i < sg.End; i++ {
				g.add(s.Lanes[l][i])
			}
			p.lanes[l] = append(p.lanes[l], g)
		}
	}
	return p, nil
}

// add takes up a step of the group.
func (g *group) add(st schedule.Step) {
	if st.Op == schedule.Send {
		g.sends = append(g.sends, st.Peer)
		if g.Dst.Buf == schedule.None {
			g.operands = []operand{{span: st.Src}}
		}
		return
	}
	g.final = g.final || st.Final
	local, recv := operand{span: st.Src}, operand{recv: true, peer: st.Peer}
	next := local
	switch st.Op {
	case schedule.Recv:
		next = recv
	case schedule.RecvReduce:
		next = recv
		if len(g.operands) == 0 {
			g.operands = []operand{local}
		}
	case schedule.Combine:
		if len(g.operands) == 0 {
			g.operands = []operand{{span: st.Dst}}
		}
	}
	if st.Left && len(g.operands) == 1 {
		g.operands = []operand{next, g.operands[0]}
		return
	}
	next.left = st.Left
	g.operands = append(g.operands, next)
}

// span is what tells the length of the group's transfer.
func (g *group) span() schedule.Span {
	if g.Dst.Buf != schedule.None {
		return g.Dst
	}
	return g.operands[0].span
}

// Transfer is the program of one message from or to a peer: In goes out, or Out comes in.
func Transfer(peer int, send bool) *Program {
	if send {
		s := schedule.Schedule{In: 1, Lazy: true, Lanes: []schedule.Lane{{{Op: schedule.Send, Peer: peer, Src: schedule.At(schedule.In, 0)}}}}
		g := group{Group: schedule.Group{End: 1}, operands: []operand{{span: schedule.At(schedule.In, 0)}}, sends: []int{peer}}
		return &Program{Schedule: s, lanes: [][]group{{g}}}
	}
	s := schedule.Schedule{Out: 1, Lanes: []schedule.Lane{{{Op: schedule.Recv, Peer: peer, Dst: schedule.At(schedule.Out, 0)}}}}
	g := group{Group: schedule.Group{End: 1, Dst: schedule.At(schedule.Out, 0)}, operands: []operand{{recv: true, peer: peer}}}
	return &Program{Schedule: s, lanes: [][]group{{g}}}
}

package schedule

// Group is the steps [First, End) of a lane that run together, segment by segment, as one streamed
// step: take the same segment of everything that is received, reduce it in the order of the steps
// into Dst, pass it to everybody it is sent to, give the received slots back, go on with the next
// segment. A segment moves only when all of it can: every receive has data and every send a free
// slot.
type Group struct {
	First, End int
	// Dst is what the steps write and the Sends read; the zero Span for Sends on their own.
	Dst Span
	// Transient says that nobody but the group's own Sends reads what it writes: Dst is written
	// again before it is read, or is Scratch and never read. An executor that hands the data on
	// elsewhere need not store it. A span that is lent to a peer must be stored all the same.
	Transient bool
}

// Fuse divides every lane of a schedule into groups, in order and without gaps. It is the one
// statement of which steps an executor may stream: the verifier proves freedom from deadlock for
// exactly these groups.
//
// A group begins with a step that writes Dst, takes up steps that reduce further into the very
// same span (RecvReduce with Src = Dst, Combine) and then Sends of that span; or it is Sends of one span
// alone. A group receives at most once from a peer and sends at most once to a peer, because a link is first in, first
// out and a second chunk comes only after all segments of the first; and only its first step has
// an After. Every other step is a group on its own.
func Fuse(s *Schedule) [][]Group {
	groups := make([][]Group, len(s.Lanes))
	for l, lane := range s.Lanes {
		groups[l] = fuseLane(lane)
	}
	markTransient(s, groups)
	return groups
}

func fuseLane(lane Lane) []Group {
	groups := make([]Group, 0, len(lane))
	for i := 0; i < len(lane); {
		g := Group{First: i, End: i + 1, Dst: lane[i].Dst}
		for g.End < len(lane) && joins(lane[g.First:g.End], &lane[g.End]) {
			g.End++
		}
		groups = append(groups, g)
		i = g.End
	}
	return groups
}

// joins tells whether next may run in one group with the steps before it.
func joins(group Lane, next *Step) bool {
	dst, last := group[0].Dst, group[len(group)-1]
	if group[0].Op == Send {
		dst = group[0].Src
	}
	if next.After != (After{}) {
		return false
	}
	switch next.Op {
	case RecvReduce:
		if next.Src != dst || next.Dst != dst || last.Op == Send {
			return false
		}
	case Combine:
		return next.Dst == dst && last.Op != Send
	case Send:
		if next.Src != dst {
			return false
		}
	default:
		return false
	}
	for i := range group {
		if group[i].Peer == next.Peer && group[i].Op.remote() && group[i].Op.Receives() == next.Op.Receives() {
			return false
		}
	}
	return true
}

func (o Op) remote() bool { return o == Send || o == Recv || o == RecvReduce }

// Fates of what a chunk holds, as seen from a place in a lane.
const (
	fateEnd  uint8 = iota // nothing more touches it in this lane
	fateRead              // it is read
	fateLost              // it is overwritten
)

// markTransient walks every lane backwards and notes what becomes of each chunk. A chunk that two
// lanes touch counts as read.
func markTransient(s *Schedule, groups [][]Group) {
	index := func(b Buf, i int) int {
		if b == Scratch {
			return s.Out + i
		}
		return i
	}
	chunks := s.Out + len(s.Scratch)
	owner := make([]int32, chunks) // lane + 1; −1: several
	each := func(sp Span, f func(c int)) {
		if sp.Buf == Out || sp.Buf == Scratch {
			for i := range sp.Count {
				f(index(sp.Buf, sp.First+i))
			}
		}
	}
	for l, lane := range s.Lanes {
		claim := func(c int) {
			if o := owner[c]; o != 0 && o != int32(l)+1 {
				owner[c] = -1
				return
			}
			owner[c] = int32(l) + 1
		}
		for i := range lane {
			each(lane[i].Src, claim)
			each(lane[i].Dst, claim)
		}
	}
	fate := make([]uint8, chunks)
	for l, lane := range s.Lanes {
		for g := len(groups[l]) - 1; g >= 0; g-- {
			group := &groups[l][g]
			group.Transient = group.Dst.Count > 0
			each(group.Dst, func(c int) {
				kept := fate[c] == fateRead || fate[c] == fateEnd && c < s.Out || owner[c] < 0
				group.Transient = group.Transient && !kept
			})
			for i := group.End - 1; i >= group.First; i-- {
				st := &lane[i]
				if st.Op != Combine {
					each(st.Dst, func(c int) { fate[c] = fateLost })
				} else {
					each(st.Dst, func(c int) { fate[c] = fateRead })
				}
				each(st.Src, func(c int) { fate[c] = fateRead })
			}
		}
	}
}

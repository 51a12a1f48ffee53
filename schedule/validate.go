package schedule

import "fmt"

// InvalidError says where a schedule breaks an invariant.
type InvalidError struct {
	Rank int
	Lane int    // −1: not about a step
	Step int    // index in the lane
	Op   Op     // of the step
	What string // the field, and what is wrong with it
}

// Error is one line: `schedule: rank 2 lane 0 step 5 (recv): dst out[3] outside 3 chunks`.
func (e *InvalidError) Error() string {
	if e.Lane < 0 {
		return fmt.Sprintf("schedule: rank %d: %s", e.Rank, e.What)
	}
	return fmt.Sprintf("schedule: rank %d lane %d step %d (%v): %s", e.Rank, e.Lane, e.Step, e.Op, e.What)
}

// Validate checks the invariants that one rank's schedule can show by itself. It returns an
// *[InvalidError] for the first that is broken.
func (s *Schedule) Validate() error {
	if what := s.header(); what != "" {
		return &InvalidError{Rank: s.Rank, Lane: -1, What: what}
	}
	perBlock := s.PerBlock()
	for l, lane := range s.Lanes {
		for i := range lane {
			if what := s.step(l, &lane[i], perBlock); what != "" {
				return &InvalidError{Rank: s.Rank, Lane: l, Step: i, Op: lane[i].Op, What: what}
			}
		}
	}
	return s.acyclic()
}

func (s *Schedule) header() string {
	c := s.Collective
	switch {
	case !c.valid():
		return fmt.Sprintf("collective: %v is none", c)
	case s.Size < 1:
		return fmt.Sprintf("size: %d", s.Size)
	case s.Rank < 0 || s.Rank >= s.Size:
		return fmt.Sprintf("rank: %d outside %d ranks", s.Rank, s.Size)
	case s.Root < 0 || s.Root >= s.Size:
		return fmt.Sprintf("root: %d outside %d ranks", s.Root, s.Size)
	case s.Root != 0 && !c.Rooted():
		return fmt.Sprintf("root: %d in %v, which has none", s.Root, c)
	case s.Ahead < 0:
		return fmt.Sprintf("ahead: %d", s.Ahead)
	}
	in, out := c.Blocks(s.Rank, s.Size, s.Root)
	p := s.PerBlock()
	if p < 1 || s.In != in*p || s.Out != out*p {
		return fmt.Sprintf("in, out: %d and %d chunks do not divide %d and %d blocks alike", s.In, s.Out, in, out)
	}
	for i, ch := range s.Scratch {
		n := 0
		switch ch.Buf {
		case In:
			n = s.In
		case Out:
			n = s.Out
		}
		if ch.Index < 0 || ch.Index >= n {
			return fmt.Sprintf("scratch[%d]: has the size of %v, which does not exist", i, At(ch.Buf, ch.Index))
		}
	}
	return ""
}

// step returns what is wrong with a step of lane l, or "".
func (s *Schedule) step(l int, st *Step, perBlock int) string {
	switch st.Op {
	case Send, Recv, RecvReduce:
		if st.Peer < 0 || st.Peer >= s.Size || st.Peer == s.Rank {
			return fmt.Sprintf("peer: %d is no other rank of %d", st.Peer, s.Size)
		}
	case Copy, Combine:
		if st.Peer != 0 {
			return fmt.Sprintf("peer: %d in a local step", st.Peer)
		}
	default:
		return fmt.Sprintf("op: %v is none", st.Op)
	}
	if what := s.span("src", st.Src, st.Op.reads()); what != "" {
		return what
	}
	if what := s.span("dst", st.Dst, st.Op.writes()); what != "" {
		return what
	}
	if what := s.pair(st, perBlock); what != "" {
		return what
	}
	reducing := st.Op == RecvReduce || st.Op == Combine
	switch {
	case st.Dst.Buf == In:
		return fmt.Sprintf("dst: %v is never written", st.Dst)
	case reducing && !s.Collective.Reduces():
		return fmt.Sprintf("op: %v reduces nothing", s.Collective)
	case st.Left && !reducing:
		return "left: only recv-reduce and combine have a left operand"
	case st.Final && !(st.Op.writes() && s.Collective.Finishes()):
		return fmt.Sprintf("final: nothing to finish in %v of %v", st.Op, s.Collective)
	}
	return s.after(l, st.After)
}

func (s *Schedule) span(field string, sp Span, used bool) string {
	if !used {
		if sp != (Span{}) {
			return fmt.Sprintf("%s: %v is not used here and must be zero", field, sp)
		}
		return ""
	}
	n := 0
	switch sp.Buf {
	case In:
		n = s.In
	case Out:
		n = s.Out
	case Scratch:
		n = len(s.Scratch)
	default:
		return fmt.Sprintf("%s: missing", field)
	}
	// Written so that a huge First or Count cannot overflow.
	if sp.Count < 1 || sp.First < 0 || sp.First > n || sp.Count > n-sp.First {
		return fmt.Sprintf("%s: %v outside %d chunks", field, sp, n)
	}
	return ""
}

// pair checks Src against Dst of a step that has both.
func (s *Schedule) pair(st *Step, perBlock int) string {
	if !st.Op.reads() || !st.Op.writes() {
		return ""
	}
	if st.Src.Count != st.Dst.Count {
		return fmt.Sprintf("src, dst: %v and %v have different counts", st.Src, st.Dst)
	}
	if st.Src == st.Dst && st.Op == RecvReduce {
		return ""
	}
	if st.Src.Overlaps(st.Dst) {
		return fmt.Sprintf("src, dst: %v and %v overlap", st.Src, st.Dst)
	}
	for i := range st.Src.Count {
		if s.chunkClass(st.Src.Buf, st.Src.First+i, perBlock) != s.chunkClass(st.Dst.Buf, st.Dst.First+i, perBlock) {
			return fmt.Sprintf("src, dst: %v and %v have different sizes",
				At(st.Src.Buf, st.Src.First+i), At(st.Dst.Buf, st.Dst.First+i))
		}
	}
	return ""
}

func (s *Schedule) after(l int, a After) string {
	switch {
	case a == After{}:
		return ""
	case a.Lane < 0 || a.Lane >= len(s.Lanes):
		return fmt.Sprintf("after: no lane %d", a.Lane)
	case a.Lane == l:
		return "after: a lane is always in order"
	case a.Steps < 1 || a.Steps > len(s.Lanes[a.Lane]):
		return fmt.Sprintf("after: lane %d has %d steps, not %d", a.Lane, len(s.Lanes[a.Lane]), a.Steps)
	}
	return ""
}

// acyclic runs the lanes against each other as if every peer were always ready.
func (s *Schedule) acyclic() error {
	done := make([]int, len(s.Lanes))
	for moved := true; moved; {
		moved = false
		for l, lane := range s.Lanes {
			for done[l] < len(lane) {
				a := lane[done[l]].After
				if a.Steps > 0 && done[a.Lane] < a.Steps {
					break
				}
				done[l]++
				moved = true
			}
		}
	}
	for l, lane := range s.Lanes {
		if i := done[l]; i < len(lane) {
			return &InvalidError{Rank: s.Rank, Lane: l, Step: i, Op: lane[i].Op,
				What: fmt.Sprintf("after: waits in a circle for %d steps of lane %d", lane[i].After.Steps, lane[i].After.Lane)}
		}
	}
	return nil
}

func (o Op) reads() bool  { return o == Send || o == RecvReduce || o == Copy || o == Combine }
func (o Op) writes() bool { return o == Recv || o == RecvReduce || o == Copy || o == Combine }

// Receives tells whether a step of this Op takes data from its peer.
func (o Op) Receives() bool { return o == Recv || o == RecvReduce }

// Overlaps tells whether two spans share a chunk.
func (a Span) Overlaps(b Span) bool {
	return a.Buf == b.Buf && a.Buf != None && a.First < b.First+b.Count && b.First < a.First+a.Count
}

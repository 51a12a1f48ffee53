package recorder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what the dumps of one communicator say together.
type Report struct {
	Epoch string
	Size  int
	// Findings name the culprits, the weightiest first. There is always one.
	Findings []string
	// Ranks has a line for every rank.
	Ranks []string
}

// Explain merges dumps of any number of communicators. Of several of one rank it takes the latest.
func Explain(dumps []*Dump) []Report {
	type id struct {
		epoch string
		size  int
	}
	comms := map[id]map[int]*Dump{}
	var ids []id
	for _, d := range dumps {
		k := id{d.Epoch, d.Size}
		if comms[k] == nil {
			comms[k] = map[int]*Dump{}
			ids = append(ids, k)
		}
		if old := comms[k][d.Rank]; old == nil || old.At.Before(d.At) {
			comms[k][d.Rank] = d
		}
	}
	slices.SortFunc(ids, func(a, b id) int { return cmp.Or(-cmp.Compare(a.size, b.size), cmp.Compare(a.epoch, b.epoch)) })
	var out []Report
	for _, k := range ids {
		out = append(out, newInquest(k.size, comms[k]).report(k.epoch))
	}
	return out
}

// tardy is how much later than others' failure a rank must have begun the call to be called late. It
// covers what a failure takes to reach all ranks.
const tardy = 100 * time.Millisecond

// state is one rank in a case.
type state struct {
	rank  int
	dump  *Dump // nil: absent
	now   *Call // the call in progress or failed, or nil
	last  *Call // the latest call
	waits []int
	by    []int         // who waits for it
	late  time.Duration // how long after another's failure it began the call; 0: not so
	gone  string        // what the first rank that saw it end says
	free  bool          // it waits for nobody, or for one who, in the end, does
}

// inquest is the ranks of a communicator and who waits for whom.
type inquest struct {
	size  int
	ranks []state
}

func newInquest(size int, byRank map[int]*Dump) *inquest {
	q := &inquest{size: size, ranks: make([]state, size)}
	for r := range q.ranks {
		s := &q.ranks[r]
		s.rank, s.dump = r, byRank[r]
		if s.dump == nil {
			continue
		}
		for i := range s.dump.Calls {
			c := &s.dump.Calls[i]
			if s.last = c; c.State != Done && s.now == nil {
				s.now = c
			}
		}
		for _, l := range s.dump.Lanes {
			for _, p := range l.WaitsFor {
				if p != r && !slices.Contains(s.waits, p) {
					s.waits = append(s.waits, p)
				}
			}
		}
		slices.Sort(s.waits)
	}
	q.relate()
	return q
}

// relate finds out what ranks are to each other, once it is known what each says of itself.
func (q *inquest) relate() {
	for r := range q.ranks {
		s := &q.ranks[r]
		if q.tardy(s) {
			s.waits = nil // it had nobody to wait for any more
		}
		for _, p := range s.waits {
			q.ranks[p].by = append(q.ranks[p].by, r)
		}
		if s.dump == nil {
			continue
		}
		for _, p := range s.dump.Peers {
			if p.Gone != "" && p.Rank >= 0 && p.Rank < q.size && q.ranks[p.Rank].gone == "" {
				q.ranks[p.Rank].gone = fmt.Sprintf("; rank %d says: %s", r, p.Gone)
			}
		}
	}
	var todo []int
	for r := range q.ranks {
		if len(q.ranks[r].waits) == 0 {
			todo = append(todo, r)
		}
	}
	for ; len(todo) > 0; todo = todo[1:] {
		if s := &q.ranks[todo[0]]; !s.free {
			s.free = true
			todo = append(todo, s.by...)
		}
	}
}

// tardy finds out whether a rank made its failed call only when others had given it up.
func (q *inquest) tardy(s *state) bool {
	if s.now == nil || s.now.State != Failed || s.now.Waited != nil || !s.now.Collective() {
		return false
	}
	for i := range q.ranks {
		o := &q.ranks[i]
		if o.now == nil || o.now.State != Failed || !o.now.Collective() || o.now.Seq != s.now.Seq || o.now.Waited == nil {
			continue
		}
		if d := s.dump.At.Sub(o.dump.At); d > tardy {
			s.late = max(s.late, d)
		}
	}
	return s.late > 0
}

// waiters are the ranks that wait for a rank, directly or through others.
func (q *inquest) waiters(rank int) []int {
	seen := map[int]bool{rank: true}
	var found []int
	for todo := []int{rank}; len(todo) > 0; todo = todo[1:] {
		for _, r := range q.ranks[todo[0]].by {
			if !seen[r] {
				seen[r] = true
				found, todo = append(found, r), append(todo, r)
			}
		}
	}
	slices.Sort(found)
	return found
}

func (q *inquest) report(epoch string) Report {
	rep := Report{Epoch: epoch, Size: q.size}
	rep.Findings = append(rep.Findings, q.disagreement()...)
	if rep.Findings == nil {
		for r := range q.ranks {
			if f := q.blame(&q.ranks[r]); f != "" {
				rep.Findings = append(rep.Findings, f)
			}
		}
		rep.Findings = append(rep.Findings, q.cycle()...)
	}
	rep.Findings = append(rep.Findings, q.unexplained(len(rep.Findings) > 0)...)
	for r := range q.ranks {
		rep.Ranks = append(rep.Ranks, q.ranks[r].line())
	}
	return rep
}

// disagreement finds the first collective that ranks describe differently.
func (q *inquest) disagreement() []string {
	type said struct {
		words [2]string
		text  string
		ranks []int
	}
	bySeq := map[uint32][]said{}
	first, found := uint32(0), false
	for r := range q.ranks {
		d := q.ranks[r].dump
		if d == nil {
			continue
		}
		for i := range d.Calls {
			c := &d.Calls[i]
			if !c.Collective() {
				continue
			}
			list := bySeq[c.Seq]
			words := [2]string{c.A, c.B}
			k := slices.IndexFunc(list, func(s said) bool { return s.words == words })
			if k < 0 {
				list, k = append(list, said{words: words, text: c.Text}), len(list)
			}
			list[k].ranks = append(list[k].ranks, r)
			if bySeq[c.Seq] = list; len(list) > 1 && (!found || c.Seq < first) {
				first, found = c.Seq, true
			}
		}
	}
	if !found {
		return nil
	}
	var parts []string
	list := bySeq[first]
	slices.SortStableFunc(list, func(a, b said) int { return cmp.Compare(len(b.ranks), len(a.ranks)) })
	for _, s := range list {
		parts = append(parts, fmt.Sprintf("%s: %s", names(s.ranks), s.text))
	}
	return []string{fmt.Sprintf("ranks disagree about call #%d: %s", first, strings.Join(parts, "; "))}
}

// blame says what keeps others waiting in a rank that itself waits for nobody.
func (q *inquest) blame(s *state) string {
	if len(s.waits) > 0 {
		return ""
	}
	who := q.waiters(s.rank)
	if s.dump == nil {
		return q.absent(s, who)
	}
	if len(who) == 0 {
		return ""
	}
	in := ""
	var theirs *Call
	for _, r := range who {
		if c := q.ranks[r].now; c != nil {
			if theirs == nil || c.Collective() && !theirs.Collective() {
				theirs = c
			}
		}
	}
	if theirs != nil {
		in = " in " + theirs.Text
	}
	wait := fmt.Sprintf("%s %s for it%s", names(who), verb(who, "waits", "wait"), in)
	switch {
	case s.dump.Silent:
		return fmt.Sprintf("rank %d is in a call and did not answer: it computes, or its process is starved; %s", s.rank, wait)
	case s.late > 0:
		return fmt.Sprintf("rank %d is late: it made %s %v after the others had given it up; %s", s.rank, s.now.Text, s.late.Round(time.Millisecond), strings.Replace(wait, " wait", " waited", 1))
	case s.dump.Closed:
		return fmt.Sprintf("rank %d closed its communicator; %s", s.rank, wait)
	case s.now != nil:
		return fmt.Sprintf("rank %d is busy in %s and waits for nobody; %s", s.rank, s.now.Text, wait)
	case s.last == nil:
		return fmt.Sprintf("rank %d is late: it has made no call yet; %s", s.rank, wait)
	}
	return fmt.Sprintf("rank %d is late: it is in no call, and its last, %s, is done; %s", s.rank, s.last.Text, wait)
}

// absent speaks of a rank without a dump.
func (q *inquest) absent(s *state, who []int) string {
	text := fmt.Sprintf("rank %d is absent: it left no dump", s.rank)
	if len(who) > 0 {
		text += fmt.Sprintf("; %s %s for it", names(who), verb(who, "waits", "wait"))
		if c := q.ranks[who[0]].now; c != nil {
			text += " in " + c.Text
		}
	}
	return text + s.gone
}

// cycle finds ranks that wait for each other, if nobody who waits for nobody keeps them waiting.
func (q *inquest) cycle() []string {
	var out []string
	told := make([]bool, q.size)
	for start := range q.ranks {
		at := map[int]int{} // position on the path from start, from 1
		var path []int
		for r := start; !told[r] && !q.ranks[r].free; r = q.ranks[r].waits[0] {
			if at[r] > 0 {
				path = path[at[r]-1:]
				var parts []string
				for i, r := range path {
					in := ""
					if c := q.ranks[r].now; c != nil {
						in = " in " + c.Text
					}
					parts = append(parts, fmt.Sprintf("rank %d waits for rank %d%s", r, path[(i+1)%len(path)], in))
					told[r] = true
				}
				out = append(out, "ranks wait for each other: "+strings.Join(parts, ", "))
				break
			}
			at[r] = len(path) + 1
			path = append(path, r)
		}
	}
	return out
}

// unexplained adds what breaks say that nothing else has said, or that all is well.
func (q *inquest) unexplained(explained bool) []string {
	var first *Dump
	for r := range q.ranks {
		if d := q.ranks[r].dump; d != nil && d.Broken != nil && (first == nil || d.At.Before(first.At)) {
			first = d
		}
	}
	if first != nil {
		return []string{fmt.Sprintf("the first to fail was rank %d: %s", first.Rank, first.Broken.Text)}
	}
	if explained {
		return nil
	}
	return []string{"nobody waits"}
}

package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads the text form that [Schedule.String] writes. It checks the form only; Validate
// checks the content. Blank lines and lines that begin with # are skipped, and the space between
// words is free.
func Parse(text string) (Schedule, error) {
	var s Schedule
	begun := false
	for n, line := range strings.Split(text, "\n") {
		p := parser{words: strings.Fields(line)}
		if len(p.words) == 0 || strings.HasPrefix(p.words[0], "#") {
			continue
		}
		switch {
		case !begun:
			p.header(&s)
			begun = true
		case p.words[0] == "scratch":
			p.next()
			p.scratch(&s)
		case p.words[0] == "lane":
			p.next()
			s.Lanes = append(s.Lanes, Lane{})
		case len(s.Lanes) == 0:
			p.fail("a step before the first lane")
		default:
			lane := &s.Lanes[len(s.Lanes)-1]
			*lane = append(*lane, p.step())
		}
		if p.err == nil && len(p.words) > 0 {
			p.fail("%q is too much", p.words[0])
		}
		if p.err != nil {
			return Schedule{}, fmt.Errorf("schedule: line %d: %w", n+1, p.err)
		}
	}
	if !begun {
		return Schedule{}, fmt.Errorf("schedule: empty text")
	}
	return s, nil
}

// parser takes words from the front of a line. After the first error it does nothing more.
type parser struct {
	words []string
	err   error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) next() string {
	if p.err != nil {
		return ""
	}
	if len(p.words) == 0 {
		p.fail("something is missing at the end")
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// take takes the word if it is the next one.
func (p *parser) take(word string) bool {
	if p.err == nil && len(p.words) > 0 && p.words[0] == word {
		p.words = p.words[1:]
		return true
	}
	return false
}

func (p *parser) expect(word string) {
	if !p.take(word) {
		p.fail("%q is missing", word)
	}
}

// number reads a count or an index, which fits in 31 bits.
func (p *parser) number(w string) int {
	n, err := strconv.ParseUint(w, 10, 31)
	if err != nil {
		p.fail("%q is no number", w)
	}
	return int(n)
}

func (p *parser) header(s *Schedule) {
	c, err := ParseCollective(p.next())
	if err != nil {
		p.fail("%w", err)
	}
	s.Collective = c
	for _, f := range []struct {
		word string
		to   *int
	}{{"rank", &s.Rank}, {"of", &s.Size}, {"root", &s.Root}, {"in", &s.In}, {"out", &s.Out}, {"ahead", &s.Ahead}} {
		p.expect(f.word)
		*f.to = p.number(p.next())
	}
	for _, f := range s.flags() {
		*f.set = p.take(f.name)
	}
}

func (p *parser) scratch(s *Schedule) {
	if len(s.Scratch) > 0 || len(s.Lanes) > 0 {
		p.fail("scratch belongs on the second line")
	}
	for p.err == nil && len(p.words) > 0 {
		sp := p.span()
		if sp.Count != 1 {
			p.fail("%v is not one chunk", sp)
		}
		s.Scratch = append(s.Scratch, Chunk{sp.Buf, sp.First})
	}
}

func (p *parser) span() Span {
	w := p.next()
	name, rest, ok := strings.Cut(w, "[")
	rest, closed := strings.CutSuffix(rest, "]")
	var sp Span
	for b := In; b <= Scratch; b++ {
		if bufNames[b] == name {
			sp.Buf = b
		}
	}
	if !ok || !closed || sp.Buf == None {
		p.fail("%q is no span", w)
		return sp
	}
	first, end, several := strings.Cut(rest, ":")
	sp.First, sp.Count = p.number(first), 1
	if several {
		sp.Count = p.number(end) - sp.First
	}
	return sp
}

func (p *parser) peer() int { return p.number(p.next()) }

func (p *parser) step() Step {
	var st Step
	switch w := p.next(); w {
	case "send":
		st.Op, st.Src = Send, p.span()
		p.expect("to")
		st.Peer = p.peer()
	case "recv":
		st.Op, st.Dst = Recv, p.span()
		p.expect("from")
		st.Peer = p.peer()
	case "recv-reduce":
		st.Op, st.Dst = RecvReduce, p.span()
		p.expect("=")
		if st.Left = p.take("from"); st.Left {
			st.Peer = p.peer()
			p.expect("+")
			st.Src = p.span()
		} else {
			st.Src = p.span()
			p.expect("+")
			p.expect("from")
			st.Peer = p.peer()
		}
	case "copy":
		st.Op, st.Dst = Copy, p.span()
		p.expect("=")
		st.Src = p.span()
	case "combine":
		st.Op, st.Dst = Combine, p.span()
		p.expect("=")
		l := p.span()
		p.expect("+")
		r := p.span()
		switch st.Dst {
		case l:
			st.Src = r
		case r:
			st.Src, st.Left = l, true
		default:
			p.fail("neither operand is %v", st.Dst)
		}
	default:
		p.fail("%q is no step", w)
	}
	st.Final = p.take("final")
	if p.take("after") {
		lane, steps, ok := strings.Cut(p.next(), ":")
		if !ok {
			p.fail("after wants lane:steps")
		}
		st.After = After{p.number(lane), p.number(steps)}
	}
	return st
}

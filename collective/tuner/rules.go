package tuner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gccl/gccl/schedule"
)

// Rules say which algorithms a call may use: the setting GCCL_ALGO. The zero value allows all.
//
//	rules   = rule *( ";" rule )
//	rule    = [ collective ":" ] ( names / ranged *( "," ranged ) )
//	ranged  = range "=" name *( "|" name )          with "^" before the first name: all but these
//	names   = name *( "," name )                    likewise
//	range   = [ from ] "-" [ to ]                   bytes, from included, to not; suffix K, M or G
//	name    = "ring" / "tree" / "direct"            every algorithm of the package
//	        / "direct.AllReduceTwoShot"             one algorithm
//	        / "AllReduceTwoShot" / "TwoShot"        the same, without package, without collective
//
// Names and collectives may be written in any case. Bytes are those of the longer of In and Out on
// the rank where they are longest, which is nccl-tests' size; lengths that not all ranks know
// (GatherV, ScatterV, AllToAllV) count as 0. Where no range fits, all are allowed. A
// rule without a collective is for every collective that has an algorithm of one of the names, and
// gives way to a rule for the collective.
//
//	ring
//	allreduce:ring;broadcast:^tree
//	allreduce:0-16K=OneShot,16K-=ring|TwoShot
type Rules struct {
	byCollective map[schedule.Collective][]span
	text         string
}

// span is what holds for a range of bytes.
type span struct {
	from, to int // to is excluded
	allowed  []bool
	but      bool // given as what is excluded
	found    bool // some name is an algorithm of the collective
}

// ParseRules reads a setting. A name that no algorithm has is an error that lists those that exist.
func ParseRules(text string, catalog []schedule.Info) (Rules, error) {
	r := Rules{text: strings.TrimSpace(text)}
	if r.text == "" {
		return r, nil
	}
	own := map[schedule.Collective][]span{}
	all := map[schedule.Collective][]span{}
	general := false
	for _, rule := range strings.Split(r.text, ";") {
		head, body, found := strings.Cut(rule, ":")
		if !found {
			head, body = "", rule
		}
		head = strings.TrimSpace(head)
		if head == "" {
			if found || general {
				return Rules{}, fmt.Errorf("rule %q: need one collective before the colon, and one rule without any", rule)
			}
			general = true
			if err := parseGeneral(body, catalog, all); err != nil {
				return Rules{}, fmt.Errorf("rule %q: %w", rule, err)
			}
			continue
		}
		coll, err := schedule.ParseCollective(strings.ToLower(head))
		if err != nil {
			return Rules{}, fmt.Errorf("rule %q: no collective is called %q; there are %s", rule, head, collectives())
		}
		if own[coll] != nil {
			return Rules{}, fmt.Errorf("rule %q: a second rule for %v", rule, coll)
		}
		if own[coll], err = parseSpans(body, coll, catalog, false); err != nil {
			return Rules{}, fmt.Errorf("rule %q: %w", rule, err)
		}
	}
	for c, s := range own {
		all[c] = s
	}
	r.byCollective = all
	return r, nil
}

// parseGeneral reads a rule for every collective that has one of the names.
func parseGeneral(body string, catalog []schedule.Info, into map[schedule.Collective][]span) error {
	// A name must mean something somewhere, alone: "ring,tre" must not pass because there are rings.
	for _, name := range namesIn(body) {
		if !slices.ContainsFunc(catalog, func(in schedule.Info) bool { return named(&in, name) }) {
			return fmt.Errorf("no algorithm is called %q; there are %s", name, list(catalog, 0))
		}
	}
	for _, c := range schedule.Collectives() {
		spans, err := parseSpans(body, c, catalog, true)
		if err != nil {
			return err
		}
		if spans = slices.DeleteFunc(spans, func(s span) bool { return !s.found }); len(spans) > 0 {
			into[c] = spans
		}
	}
	return nil
}

// parseSpans reads the names or ranges for a collective. If some is true, names that are other
// collectives' are passed over.
func parseSpans(body string, coll schedule.Collective, catalog []schedule.Info, some bool) ([]span, error) {
	if !strings.Contains(body, "=") {
		s := span{to: math.MaxInt}
		err := s.parseNames(strings.ReplaceAll(body, ",", "|"), coll, catalog, some)
		return []span{s}, err
	}
	var spans []span
	for _, ranged := range strings.Split(body, ",") {
		bounds, names, ok := strings.Cut(ranged, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no range, but others have: write from-to=name|name", strings.TrimSpace(ranged))
		}
		s, err := parseRange(bounds)
		if err != nil {
			return nil, err
		}
		for _, o := range spans {
			if s.from < o.to && o.from < s.to {
				return nil, fmt.Errorf("range %s overlaps another", strings.TrimSpace(bounds))
			}
		}
		if err = s.parseNames(names, coll, catalog, some); err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
	return spans, nil
}

func parseRange(text string) (s span, err error) {
	from, to, ok := strings.Cut(strings.TrimSpace(text), "-")
	if !ok {
		return s, fmt.Errorf("range %q: want from-to, either may be left out", text)
	}
	s.to = math.MaxInt
	if from = strings.TrimSpace(from); from != "" {
		if s.from, err = parseSize(from); err != nil {
			return s, err
		}
	}
	if to = strings.TrimSpace(to); to != "" {
		if s.to, err = parseSize(to); err != nil {
			return s, err
		}
	}
	if s.from >= s.to {
		return s, fmt.Errorf("range %q is empty", text)
	}
	return s, nil
}

// parseSize reads a count of bytes with an optional suffix K, M or G of 1024.
func parseSize(s string) (int, error) {
	digits, shift := s, 0
	if i := strings.IndexByte("KMG", s[len(s)-1]&^0x20); i >= 0 {
		digits, shift = s[:len(s)-1], 10*(i+1)
	}
	v, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || v > 1<<62>>shift {
		return 0, fmt.Errorf("%q is no number of bytes, with K, M or G at most", s)
	}
	return int(v) << shift, nil
}

// parseNames reads which algorithms of the catalog a list allows.
func (s *span) parseNames(text string, coll schedule.Collective, catalog []schedule.Info, some bool) error {
	text, s.but = strings.CutPrefix(strings.TrimSpace(text), "^")
	s.allowed = make([]bool, len(catalog))
	for _, name := range strings.Split(text, "|") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return fmt.Errorf("a name is missing")
		case name[0] == '^':
			return fmt.Errorf("%q: ^ stands before the first name and excludes all of the list", name)
		}
		found := false
		for i := range catalog {
			if catalog[i].Collective == coll && named(&catalog[i], name) {
				s.allowed[i], found = true, true
			}
		}
		s.found = s.found || found
		if !found && !some {
			return fmt.Errorf("no algorithm for %v is called %q; there are %s", coll, name, list(catalog, coll))
		}
	}
	if !s.but || !s.found {
		return nil
	}
	left := false
	for i := range s.allowed {
		s.allowed[i] = !s.allowed[i]
		left = left || s.allowed[i] && catalog[i].Collective == coll
	}
	if !left {
		return fmt.Errorf("nothing is left for %v", coll)
	}
	return nil
}

// namesIn lists the names of a rule's body.
func namesIn(body string) (names []string) {
	for _, part := range strings.FieldsFunc(body, func(r rune) bool { return r == ',' || r == '|' }) {
		if _, after, ok := strings.Cut(part, "="); ok {
			part = after
		}
		if part = strings.Trim(part, " ^"); part != "" {
			names = append(names, part)
		}
	}
	return names
}

// named tells whether an algorithm goes by a name.
func named(in *schedule.Info, name string) bool {
	pkg, fn, _ := strings.Cut(in.Name, ".")
	n := len(in.Collective.String())
	return strings.EqualFold(name, in.Name) || strings.EqualFold(name, pkg) || strings.EqualFold(name, fn) ||
		len(fn) > n && strings.EqualFold(fn[:n], in.Collective.String()) && strings.EqualFold(name, fn[n:])
}

// list names the algorithms of a collective, or of all (0), and the packages.
func list(catalog []schedule.Info, coll schedule.Collective) string {
	var pkgs, names []string
	for i := range catalog {
		if coll != 0 && catalog[i].Collective != coll {
			continue
		}
		pkg, _, _ := strings.Cut(catalog[i].Name, ".")
		if !slices.Contains(pkgs, pkg) {
			pkgs = append(pkgs, pkg)
		}
		names = append(names, catalog[i].Name)
	}
	return strings.Join(append(pkgs, names...), ", ")
}

func collectives() string {
	var names []string
	for _, c := range schedule.Collectives() {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

// Allows tells whether algorithm i may serve a collective of so many bytes.
func (r *Rules) Allows(i int, coll schedule.Collective, bytes int) bool {
	for _, s := range r.byCollective[coll] {
		if s.from <= bytes && bytes < s.to {
			return s.allowed[i]
		}
	}
	return true
}

// String is the setting as it was given.
func (r Rules) String() string { return r.text }

// names tells whether a rule allows algorithm i and not everything else: whether it was asked for.
func (r *Rules) names(i int, q Query) bool {
	for _, s := range r.byCollective[q.Collective] {
		if s.from <= q.Bytes && q.Bytes < s.to {
			return s.allowed[i] && !s.but
		}
	}
	return false
}

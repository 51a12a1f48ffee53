package verify_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tree"
)

// TestFormulas evaluates the text of every Formula and holds it against Cost, which the tests of the
// algorithms hold against the schedules.
func TestFormulas(t *testing.T) {
	for _, info := range slices.Concat(ring.Algorithms(), tree.Algorithms(), direct.Algorithms()) {
		for clause := range strings.SplitSeq(info.Formula, "; ") {
			cond, text, given := strings.Cut(clause, ": ")
			if !given {
				cond, text = "", clause
			}
			text, _, _ = strings.Cut(text, ", across hosts") // a part of the sum, told besides
			text, received := strings.CutSuffix(text, ", at the root")
			cases := 0
			for _, v := range situations() {
				if !v.meets(t, cond) || info.Supports(v.p(), v.shape) != nil {
					continue
				}
				cases++
				want := info.Cost(v.p(), v.shape)
				if received {
					want.Sent = rootReceives(t, info, v)
				}
				at := fmt.Sprintf("%s, %s, p=%d, shape %+v", info.Name, clause, v.p(), v.shape)
				for symbol, have := range map[rune]float64{'α': float64(want.Steps), 'β': want.Sent, 'γ': want.Reduced} {
					value, mark := evaluate(t, text, v.with(symbol))
					switch mark {
					case '≤':
						require.LessOrEqual(t, have, value+1e-9, "%s: %c", at, symbol)
					case '<':
						require.Less(t, have, value, "%s: %c", at, symbol)
					default:
						require.InDelta(t, have, value, 1e-9, "%s: %c", at, symbol)
					}
				}
			}
			require.Positive(t, cases, "%s, %s", info.Name, clause)
		}
	}
}

// TestCostLines holds the cost lines of doc comments against Formula.
func TestCostLines(t *testing.T) {
	docs := map[string]string{}
	for _, pkg := range []string{"direct", "tree"} {
		files, err := filepath.Glob("../../" + pkg + "/*.go")
		require.NoError(t, err)
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			require.NoError(t, err)
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					docs[pkg+"."+fn.Name.Name] = strings.Join(strings.Fields(fn.Doc.Text()), " ")
				}
			}
		}
	}
	for _, info := range slices.Concat(tree.Algorithms(), direct.Algorithms()) {
		switch doc, ok := docs[info.Name]; {
		case !ok:
			require.Equal(t, "direct.AllReduceTwoLevelRing", info.Name) // a composition of the catalog
		case !strings.Contains(doc, "cost: that of the parts"):
			require.Contains(t, doc, "cost: "+info.Formula, info.Name)
		}
	}
}

// rootReceives is what the root receives, in units of its Out.
func rootReceives(t *testing.T, info schedule.Info, v situation) float64 {
	s, err := info.Make(v.shape.Root, v.p(), v.shape)
	require.NoError(t, err)
	n := 0
	for _, l := range s.Lanes {
		for _, st := range l {
			if st.Op == schedule.Recv || st.Op == schedule.RecvReduce {
				n += max(st.Src.Count, st.Dst.Count)
			}
		}
	}
	return float64(n) / float64(s.Out)
}

// situation is a size and shape, and the values of a formula's letters.
type situation struct {
	shape schedule.Shape
	vars  map[rune]float64
}

func situations() (all []situation) {
	for p := 2; p <= 33; p++ {
		for k := 2; k <= 5; k++ {
			all = append(all, situation{schedule.Shape{Radix: k}, map[rune]float64{'p': float64(p), 'k': float64(k)}})
		}
		for a := 1; a <= p; a *= 2 {
			all = append(all, situation{schedule.Shape{Aggregate: a}, map[rune]float64{'p': float64(p), 'k': 2, 'a': float64(a)}})
		}
		for l := 2; l < p; l++ {
			if p%l != 0 {
				continue
			}
			hosts := make([]int, p)
			for r := range hosts {
				hosts[r] = r / l
			}
			all = append(all, situation{schedule.Shape{Hosts: hosts}, map[rune]float64{'p': float64(p), 'k': 2, 'h': float64(p / l), 'l': float64(l)}})
		}
	}
	return all
}

func (v situation) p() int { return int(v.vars['p']) }

// with sets S and one of α, β and γ to 1, the others to 0.
func (v situation) with(symbol rune) map[rune]float64 {
	v.vars['S'], v.vars['α'], v.vars['β'], v.vars['γ'] = 1, 0, 0, 0
	v.vars[symbol] = 1
	return v.vars
}

// meets tells whether a situation is one that the words before a formula name, and gives values to m and q.
func (v situation) meets(t *testing.T, cond string) bool {
	if _, ok := v.vars['a']; ok && (!strings.Contains(cond, "aggregate") || !power(v.vars['p'], 2)) {
		return false
	}
	if _, ok := v.vars['h']; ok != strings.Contains(cond, "hosts") {
		return false
	}
	for c := range strings.SplitSeq(cond, ", ") {
		ok := true
		switch c {
		case "", "streamed", "aggregate a", "h hosts of l ranks":
		case "radix k":
			ok = v.shape.Radix > 0 || v.vars['h'] > 0
		case "radix 2":
			ok = v.vars['k'] == 2
		case "p = 2^m", "p = k^m", "h = 2^m":
			of, base := v.vars[rune(c[0])], 2.0
			if c[4] == 'k' {
				base = v.vars['k']
			}
			ok = power(of, base)
			v.vars['m'] = math.Round(math.Log(of) / math.Log(base))
		case "other p", "other h":
			ok = !power(v.vars[rune(c[len(c)-1])], 2)
		case "q = 2^⌊log₂ p⌋", "q = 2^⌊log₂ h⌋":
			v.vars['q'] = math.Exp2(math.Floor(math.Log2(v.vars[rune(c[len(c)-4])])))
		default:
			require.Fail(t, "unknown condition", c)
		}
		if !ok {
			return false
		}
	}
	return !strings.Contains(cond, "aggregate") || v.vars['a'] > 0
}

func power(n, base float64) bool {
	for ; n > 1; n /= base {
		if math.Mod(n, base) != 0 {
			return false
		}
	}
	return true
}

// evaluate computes a formula. mark is what stands before the term that is not 0, if it is a bound: ≤ or <.
func evaluate(t *testing.T, text string, vars map[rune]float64) (sum float64, mark rune) {
	for term := range strings.SplitSeq(text, " + ") {
		first, size := utf8.DecodeRuneInString(term)
		if first != '≤' && first != '<' {
			first, size = 0, 0
		}
		p := &reader{t, []rune(term[size:]), vars}
		v := p.sum()
		require.Empty(t, p.rest, text)
		if sum += v; v != 0 && first != 0 {
			mark = first
		}
	}
	return sum, mark
}

// reader reads sums of products of letters, numbers, brackets and logarithms. What stands side by side is
// multiplied; · and / come in order.
type reader struct {
	t    *testing.T
	rest []rune
	vars map[rune]float64
}

func (p *reader) take(r rune) bool {
	if len(p.rest) > 0 && p.rest[0] == r {
		p.rest = p.rest[1:]
		return true
	}
	return false
}

func (p *reader) sum() float64 {
	v := p.product()
	for {
		switch {
		case p.take('+'):
			v += p.product()
		case p.take('−'):
			v -= p.product()
		default:
			return v
		}
	}
}

func (p *reader) product() float64 {
	v := p.factor()
	for len(p.rest) > 0 && !strings.ContainsRune("+−)⌉⌋", p.rest[0]) {
		if p.take('/') {
			v /= p.factor()
			continue
		}
		p.take('·')
		v *= p.factor()
	}
	return v
}

func (p *reader) factor() (v float64) {
	require.NotEmpty(p.t, p.rest)
	r := p.rest[0]
	p.rest = p.rest[1:]
	const little = 1e-9 // logarithms are not exact
	switch closing := map[rune]rune{'(': ')', '⌈': '⌉', '⌊': '⌋'}[r]; {
	case closing != 0:
		v = p.sum()
		require.True(p.t, p.take(closing), "%c", closing)
		switch r {
		case '⌈':
			v = math.Ceil(v - little)
		case '⌊':
			v = math.Floor(v + little)
		}
		return v
	case r >= '0' && r <= '9':
		return float64(r - '0')
	case r == 'l' && strings.HasPrefix(string(p.rest), "og"):
		base := map[rune]float64{'₂': 2}[p.rest[2]]
		p.rest = p.rest[3:]
		if base == 0 { // "log_k"
			base = p.vars[p.rest[0]]
			p.rest = p.rest[1:]
		}
		require.True(p.t, p.take(' '))
		return math.Log(p.factor()) / math.Log(base)
	}
	v, ok := p.vars[r]
	require.True(p.t, ok, "letter %c", r)
	return v
}

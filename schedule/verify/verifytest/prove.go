package verifytest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
)

// Proving tells whether tests are to prove everything that they can, which takes minutes, and not
// a part of it: whether the environment variable GCCL_PROVE is 1.
func Proving() bool { return os.Getenv("GCCL_PROVE") == "1" }

// Prove verifies an algorithm, and holds what its Info says against what the verifier finds, for
// each of the shapes that shapes gives for a size (nil: the zero Shape), whose Root it sets:
//
//   - when [Proving], for all sizes to 64 with every root and one to four channels (for what is
//     run of them and what is derived, see package verify), and for some sizes to 4096;
//   - else for all sizes to 9 and some to 33, with some roots and one or two channels.
//
// Where Supports refuses a size and shape, Make must fail on every rank. Ordered, Canonical,
// Uneven, Early and Lazy must hold where they are declared, and must be declared if they hold for
// all sizes from 5 up; InPlace is the same as not Disjoint. Cost must give the very numbers, but
// for Steps, which is a bound.
func Prove(t *testing.T, info schedule.Info, shapes func(size int) []schedule.Shape) {
	t.Helper()
	p := prover{info: info, always: facts{true, true, true, true, true}, logf: t.Logf}
	if err := p.prove(shapes); err != nil {
		t.Fatalf("%s: %v", info.Name, err)
	}
}

func (p *prover) prove(shapes func(size int) []schedule.Shape) error {
	relax()
	if shapes == nil {
		shapes = func(int) []schedule.Shape { return []schedule.Shape{{}} }
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	if Proving() { // the longest first, so that no core waits for another at the end
		for _, size := range slices.Backward(large) {
			shape := shapes(size)[0]
			if p.info.Collective.Rooted() {
				shape.Root = size / 3
			}
			g.Go(func() error { return p.large(size, shape) })
		}
	}
	for _, size := range slices.Backward(small()) {
		for _, shape := range shapes(size) {
			g.Go(func() error { return p.size(size, shape) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if p.served == 0 {
		return errors.New("no size was served")
	}
	if what := p.modest(); what != "" {
		return fmt.Errorf("%s for all sizes that were tried, but this is not declared", what)
	}
	return nil
}

// small is the sizes to try exhaustively.
func small() []int {
	if Proving() {
		return sizes(1, 64)
	}
	return append(sizes(1, 9), 12, 16, 17, 27, 33)
}

// large is a sample of sizes: powers of two and of three, their neighbours, primes, round ones.
var large = []int{81, 100, 127, 128, 129, 243, 256, 500, 512, 729, 1000, 1024, 2048, 4095, 4096}

// relax lets garbage pile up to 2 GiB for the rest of the process: the verifier makes much of it,
// and its live heap is small.
var relax = sync.OnceFunc(func() {
	debug.SetGCPercent(1000)
	debug.SetMemoryLimit(2 << 30)
})

// most is the number of chunks in steps of all ranks beyond which a size is left out.
const most = 1 << 20

func someRoots(c schedule.Collective, size int) []int {
	switch {
	case !c.Rooted():
		return []int{0}
	case Proving() || size <= 5:
		return sizes(0, size-1)
	}
	return []int{0, size / 3, size - 1}
}

func sizes(first, last int) []int {
	var list []int
	for n := first; n <= last; n++ {
		list = append(list, n)
	}
	return list
}

type facts struct{ ordered, canonical, uneven, early, lazy bool }

type prover struct {
	info schedule.Info
	logf func(format string, args ...any)

	mu     sync.Mutex
	served int
	always facts // found for every size from 5 up
	early  bool  // declared
	lazy   bool
}

// size proves a size and shape for all roots that are to be tried.
func (p *prover) size(size int, shape schedule.Shape) error {
	opts := verify.Options{Channels: 2}
	if Proving() {
		opts.Channels = 4
	}
	var served []int
	for _, root := range someRoots(p.info.Collective, size) {
		shape.Root = root
		if p.supports(size, shape) {
			served = append(served, root)
		} else if err := p.refuses(size, shape); err != nil {
			return fmt.Errorf("%d ranks, shape %+v: %w", size, shape, err)
		}
	}
	err := verify.Roots(p.info.Make, p.info.Collective, size, shape, served, opts, func(root int, rep verify.Report) error {
		rooted := shape
		rooted.Root = root
		return p.promised(size, rooted, rep, true)
	})
	if err != nil {
		return fmt.Errorf("%d ranks, shape %+v: %w", size, shape, err)
	}
	return nil
}

// large verifies one window of one channel, unless it is too much.
func (p *prover) large(size int, shape schedule.Shape) error {
	if !p.supports(size, shape) {
		return p.refuses(size, shape)
	}
	s, err := p.info.Make(0, size, shape)
	if err != nil {
		return fmt.Errorf("%d ranks, shape %+v: %w", size, shape, err)
	}
	units := 0 // of rank 0, which stands for all
	for _, lane := range s.Lanes {
		for i := range lane {
			units += max(lane[i].Src.Count, lane[i].Dst.Count)
		}
	}
	if units*size > most {
		p.logf("%s: %d ranks left out: about %d chunks to move", p.info.Name, size, units*size)
		return nil
	}
	// Every chunk on its way carries a clock as long as there are lanes.
	skip := size*units*size*len(s.Lanes) > 1<<27
	rep, err := verify.Check(p.info.Make, p.info.Collective, size, shape, verify.Options{Windows: 1, SkipOrder: skip})
	if err == nil {
		err = p.promised(size, shape, rep, !skip)
	}
	if err != nil {
		return fmt.Errorf("%d ranks, shape %+v: %w", size, shape, err)
	}
	return nil
}

func (p *prover) supports(size int, shape schedule.Shape) bool {
	return p.info.Supports == nil || p.info.Supports(size, shape) == nil
}

// refuses checks that Make fails wherever Supports does.
func (p *prover) refuses(size int, shape schedule.Shape) error {
	for r := range size {
		if _, err := p.info.Make(r, size, shape); err == nil {
			return fmt.Errorf("Supports refuses, but Make serves rank %d", r)
		}
	}
	return nil
}

// promised holds everything in Info against the report; ordered says that Early and Lazy are known.
func (p *prover) promised(size int, shape schedule.Shape, rep verify.Report, ordered bool) error {
	if err := p.promises(size, shape, rep, ordered); err != nil {
		return err
	}
	if p.info.Cost != nil {
		return p.cost(size, shape, rep)
	}
	return nil
}

// promises holds the flags of Info against the report.
func (p *prover) promises(size int, shape schedule.Shape, rep verify.Report, ordered bool) error {
	s, err := p.info.Make(0, size, shape)
	switch {
	case err != nil:
		return err
	case p.info.Ordered && !rep.Ordered:
		return fmt.Errorf("not Ordered")
	case p.info.Canonical && !rep.Canonical:
		return fmt.Errorf("not Canonical")
	case p.info.Uneven && !rep.Uneven:
		return fmt.Errorf("not Uneven: some step moves a chunk into another block")
	case p.info.Uneven && s.Ahead > 0 && !told(p.info.Collective):
		return fmt.Errorf("not Uneven: it runs %d chunks ahead, and one may be longer than a link holds", s.Ahead)
	case p.info.InPlace == s.Disjoint:
		return fmt.Errorf("InPlace is %t, but Disjoint is %t", p.info.InPlace, s.Disjoint)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.served++
	p.early, p.lazy = p.early || s.Early, p.lazy || s.Lazy
	if size < 5 {
		return nil
	}
	a := &p.always
	a.ordered, a.canonical = a.ordered && rep.Ordered, a.canonical && rep.Canonical
	a.uneven = a.uneven && rep.Uneven && (s.Ahead == 0 || told(p.info.Collective))
	if ordered {
		a.early, a.lazy = a.early && rep.Early, a.lazy && rep.Lazy
	}
	return nil
}

// told says that all ranks know the lengths of all blocks, and so cut them into windows that links hold. Elsewhere
// the two ranks of a transfer alone know its length, and all of it is one window.
func told(c schedule.Collective) bool {
	return c == schedule.AllGather || c == schedule.ReduceScatter
}

// modest names something that holds always and is not declared.
func (p *prover) modest() string {
	c, a := p.info.Collective, p.always
	blocks := c.InBlocks(2) > 1 || c.OutBlocks(2) > 1
	switch {
	case c.Reduces() && a.ordered && !p.info.Ordered:
		return "Ordered holds"
	case c.Reduces() && a.canonical && !p.info.Canonical:
		return "Canonical holds"
	case blocks && a.uneven && !p.info.Uneven:
		return "Uneven holds"
	case a.early && !p.early:
		return "Early holds"
	case a.lazy && !p.lazy:
		return "Lazy holds"
	}
	return ""
}

// cost compares the formula with what was counted, to a part in a billion.
func (p *prover) cost(size int, shape schedule.Shape, rep verify.Report) error {
	want := p.info.Cost(size, shape)
	got := schedule.Cost{
		Steps: rep.Steps, Sent: float64(rep.Sent) / float64(rep.Chunks), Reduced: float64(rep.Reduced) / float64(rep.Chunks),
	}
	if got.Steps > want.Steps || math.Abs(got.Sent-want.Sent) > 1e-9 || math.Abs(got.Reduced-want.Reduced) > 1e-9 {
		return fmt.Errorf("cost: counted %+v, but the formula says %+v", got, want)
	}
	return nil
}

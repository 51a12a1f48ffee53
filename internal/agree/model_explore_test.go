package agree

import (
	"hash/maphash"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// explorer visits the states of a model, each once. States are told apart by a hash of 64 bits: among 10⁸ states
// the odds that any two share one are 1 to 3,000.
type explorer struct {
	b        bounds
	seed     maphash.Seed
	seen     [256]shard
	outcomes sync.Map // what could be decided, if collect

	collect bool
	over    atomic.Bool
	mu      sync.Mutex
	story   []string // of the first state that is wrong
}

type shard struct {
	mu sync.Mutex
	m  map[uint64]struct{}
	_  [40]byte
}

// step is an event on the way to a state.
type step struct {
	name string
	from *step
}

func (s *step) path() (names []string) {
	for ; s != nil; s = s.from {
		names = append(names, s.name)
	}
	slices.Reverse(names)
	return names
}

// place is a state that waits to be visited, and how one gets there.
type place struct {
	w   *world
	way *step
}

// fresh reports whether a state has not been visited, and counts it as visited.
func (e *explorer) fresh(w *world, buf []byte) ([]byte, bool) {
	buf = w.key(buf[:0])
	h := maphash.Bytes(e.seed, buf)
	s := &e.seen[h&255]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.m)
	s.m[h] = struct{}{}
	return buf, len(s.m) > n
}

// look checks a state and returns what may happen next.
func (e *explorer) look(p place) []event {
	es := p.w.events()
	quiet := !slices.ContainsFunc(es, func(ev event) bool { return !ev.fault })
	if why := p.w.wrong(quiet); why != "" {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.over.Swap(true) {
			e.story = append(p.way.path(), why)
		}
	}
	if e.collect {
		e.outcomes.Store(string(p.w.outcomes(nil)), struct{}{})
	}
	return es
}

// visit looks at what follows from the places on todo, depth first, until there are as many as most.
func (e *explorer) visit(todo []place, most int) []place {
	var buf []byte
	for len(todo) > 0 && len(todo) < most && !e.over.Load() {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, ev := range e.look(p) {
			next := p.w.clone()
			ev.do(next)
			next.settle()
			var fresh bool
			if buf, fresh = e.fresh(next, buf); fresh {
				todo = append(todo, place{next, &step{ev.name, p.way}})
			}
		}
	}
	return todo
}

// walk goes one way through the states, at random.
func (e *explorer) walk(rng *rand.Rand) {
	p := place{w: newWorld(&e.b)}
	for {
		es := e.look(p)
		if len(es) == 0 || e.over.Load() {
			return
		}
		ev := es[rng.IntN(len(es))]
		for range 2 { // failures are rarer than messages
			if ev.fault {
				ev = es[rng.IntN(len(es))]
			}
		}
		next := p.w.clone()
		ev.do(next)
		next.settle()
		e.fresh(next, nil)
		p = place{next, &step{ev.name, p.way}}
	}
}

// explore visits the states of a model and returns how many there are, and the story of one that is wrong.
func explore(b bounds) (states int, story []string) {
	e := newExplorer(b)
	e.run()
	return e.states(), e.story
}

func newExplorer(b bounds) *explorer {
	e := &explorer{b: b, seed: maphash.MakeSeed()}
	e.b.plain = b.plain || b.walks > 0
	for i := range e.seen {
		e.seen[i].m = map[uint64]struct{}{}
	}
	return e
}

func (e *explorer) states() (n int) {
	for i := range e.seen {
		n += len(e.seen[i].m)
	}
	return n
}

func (e *explorer) run() {
	if e.b.walks > 0 {
		rng := rand.New(rand.NewPCG(1, uint64(e.b.ranks)))
		for range e.b.walks {
			e.walk(rng)
		}
		return
	}
	first := newWorld(&e.b)
	e.fresh(first, nil)
	todo := e.visit([]place{{w: first}}, 4096)
	work := make(chan place, len(todo))
	for _, p := range todo {
		work <- p
	}
	close(work)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for p := range work {
				e.visit([]place{p}, 1<<62)
			}
		})
	}
	wg.Wait()
}

// Every order of messages, calls, deaths, losses and suspicions of small groups. GCCL_PROVE=1 takes the
// larger models, for some minutes.
func TestModel(t *testing.T) {
	models := []bounds{
		{ranks: 2, rounds: 2, deaths: 2, slanders: 1},
		{ranks: 3, rounds: 1, deaths: 3},
		{ranks: 4, rounds: 1, deaths: 1, fifo: true},
		{ranks: 3, rounds: 2, deaths: 2, slanders: 1, walks: 2000},
		{ranks: 4, rounds: 2, deaths: 3, slanders: 1, walks: 2000},
	}
	if os.Getenv("GCCL_PROVE") != "" {
		models = []bounds{
			{ranks: 3, rounds: 1, deaths: 3, slanders: 2},
			{ranks: 3, rounds: 2, deaths: 3},
			{ranks: 3, rounds: 2, deaths: 3, slanders: 2, fifo: true},
			{ranks: 3, rounds: 3, deaths: 3, slanders: 1, fifo: true},
			{ranks: 4, rounds: 1, deaths: 4},
			{ranks: 4, rounds: 2, deaths: 2, fifo: true},
			{ranks: 4, rounds: 2, deaths: 4, slanders: 2, walks: 100_000},
			{ranks: 5, rounds: 3, deaths: 3, slanders: 2, walks: 50_000},
		}
	}
	for _, b := range models {
		n, story := explore(b)
		t.Logf("%d ranks, %d rounds, %d deaths, %d slanders, fifo %v, %d walks: %d states", b.ranks, b.rounds, b.deaths, b.slanders, b.fifo, b.walks, n)
		require.Nil(t, story, strings.Join(story, "\n"))
	}
}

// The same can be decided in the states that the reductions leave as in all.
func TestReductions(t *testing.T) {
	models := []bounds{
		{ranks: 2, rounds: 2, deaths: 2, slanders: 1},
		{ranks: 2, rounds: 2, deaths: 2, slanders: 2, fifo: true},
		{ranks: 3, rounds: 1, deaths: 2},
		{ranks: 3, rounds: 1, deaths: 2, fifo: true},
	}
	if os.Getenv("GCCL_PROVE") != "" {
		models = append(models, bounds{ranks: 3, rounds: 1, deaths: 1, slanders: 1, fifo: true})
	}
	for _, b := range models {
		var got [2]map[string]bool
		var states [2]int
		for i := range got {
			b.plain = i == 1
			e := newExplorer(b)
			e.collect = true
			e.run()
			require.Nil(t, e.story, strings.Join(e.story, "\n"))
			states[i], got[i] = e.states(), map[string]bool{}
			e.outcomes.Range(func(k, _ any) bool { got[i][k.(string)] = true; return true })
		}
		t.Logf("%d ranks, %d rounds, %d deaths, %d slanders, fifo %v: %d states of %d, %d outcomes",
			b.ranks, b.rounds, b.deaths, b.slanders, b.fifo, states[0], states[1], len(got[0]))
		require.Equal(t, got[1], got[0])
	}
}

// The checker sees protocols that are wrong, with and without its reductions.
func TestModelFindsBugs(t *testing.T) {
	for name, bug := range map[string]func(m *Machine){
		"1: ": func(m *Machine) { // a member forgets what it has accepted
			if m.Coordinator() != m.rank {
				m.cur.accepted, m.cur.ballot = nil, -1
			}
		},
		"3: ": func(m *Machine) { // a coordinator does not wait for contributions
			if m.cur.started && m.Coordinator() == m.rank && m.cur.parts == nil {
				m.cur.parts = map[int]part{}
				for r := range m.size {
					m.cur.parts[r] = part{flags: ^uint64(0), ballot: -1}
				}
				m.consider(false)
			}
		},
		"5: ": func(m *Machine) { m.cur.toldTo = m.Coordinator() }, // a member does not turn to the next coordinator
	} {
		for _, plain := range []bool{false, true} {
			_, story := explore(bounds{ranks: 3, rounds: 1, deaths: 2, fifo: true, plain: plain, bug: bug})
			require.NotNil(t, story, name)
			require.Contains(t, story[len(story)-1], name, strings.Join(story, "\n"))
		}
	}
	for _, plain := range []bool{false, true} {
		_, story := explore(bounds{ranks: 3, rounds: 1, slanders: 1, sure: true, fifo: true, plain: plain})
		require.NotNil(t, story, "a rank that lives is taken for certainly gone")
	}
}

package tuner

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/gccl/gccl/schedule"
)

// Config is what a communicator's choices depend on. All of it must be the same on all ranks.
type Config struct {
	Catalog []schedule.Info
	Size    int
	// Hosts[r] is the index of the host of rank r, counted from 0 in the order of appearance; nil:
	// one host.
	Hosts []int
	// Load is how many ranks share a core on the host where that is most, rounded up; 0: 1.
	Load int
	// Local is the provider between ranks of one host, Net that between hosts: "shm", "tcp",
	// "verbs" or "loopback".
	Local, Net string
	// Lanes is how many links there are from a rank to another for collectives; Slots and SlotBytes
	// are theirs.
	Lanes, Slots, SlotBytes int
	// Channels is the most copies of an algorithm that may run side by side.
	Channels int
	// Reproducible restricts reductions to algorithms that all give the same bits: whatever the
	// message size, the channels, the providers and the settings, results depend only on the data
	// and the number of ranks.
	Reproducible bool
	Rules        Rules
	File         *File // nil: none
}

// Class names the providers that the model and the tuning file go by: "shm", or "shm+tcp" where ranks of
// a host talk shm and hosts tcp.
func (c *Config) Class() string {
	if c.Hosts == nil || c.Local == c.Net {
		if c.Hosts != nil {
			return c.Net
		}
		return c.Local
	}
	return c.Local + "+" + c.Net
}

// Query is a call as far as choices depend on it. All ranks must know all of it.
type Query struct {
	Collective schedule.Collective
	// Bytes is the length of the longer of In and Out on the rank where they are longest.
	Bytes      int
	Registered bool // buffers lie in memory that the peers can read
	InPlace    bool // In and Out may be the same memory
	Uneven     bool // blocks differ in length
	// Pairwise says that no rank knows all lengths: there is one window, and Bytes is 0.
	Pairwise bool
	Ordered  bool // the operation does not commute
	// Exact says that the order and grouping of the operands change no bit of the result.
	Exact bool
	// Narrow says that the element type is rounded once per reduction step, not once per operand.
	Narrow bool
	// Free lifts the Rules: for what the library itself calls.
	Free bool
}

// Candidate is an algorithm with its parameters.
type Candidate struct {
	Algorithm string // schedule.Info.Name
	Index     int    // in Config.Catalog
	Channels  int
	// Chunk is the most bytes of a chunk in one window; 0: everything in one window.
	Chunk     int
	Predicted time.Duration // by the model
	Measured  time.Duration // by the tuning file; 0: not measured
	Refused   string        // why it cannot serve the call; empty: it can
}

// String is "direct.AllReduceTwoShot, 2 channels, chunks of 262144 bytes".
func (c Candidate) String() string {
	s := c.Algorithm
	if c.Channels > 1 {
		s += fmt.Sprintf(", %d channels", c.Channels)
	}
	if c.Chunk > 0 {
		s += fmt.Sprintf(", chunks of %d bytes", c.Chunk)
	}
	return s
}

// Choice is the candidate that won.
type Choice struct {
	Candidate
	Shape schedule.Shape // with Root 0
	Why   string
}

// ErrNone says that no algorithm may serve a call. The text has the reason for each.
var ErrNone = errors.New("no algorithm may serve this call")

// Tuner chooses. Its methods may be called from any goroutine.
type Tuner struct {
	cfg     Config
	shape   schedule.Shape
	load    int
	perHost int // ranks of a host, at most

	mu       sync.Mutex
	profiles []*profile // by index in the catalog
	errs     []error
}

// option is a candidate with its profile.
type option struct {
	Candidate
	profile *profile
}

// New returns a tuner.
func New(cfg Config) (*Tuner, error) {
	switch {
	case cfg.Size < 1 || cfg.Hosts != nil && len(cfg.Hosts) != cfg.Size:
		return nil, fmt.Errorf("tuner: %d ranks, %d hosts named", cfg.Size, len(cfg.Hosts))
	case cfg.Lanes < 1 || cfg.Slots < 1 || cfg.SlotBytes < 1:
		return nil, fmt.Errorf("tuner: %d lanes of %d slots of %d bytes", cfg.Lanes, cfg.Slots, cfg.SlotBytes)
	}
	for _, p := range []string{cfg.Local, cfg.Net} {
		if _, ok := model[p]; !ok {
			return nil, fmt.Errorf("tuner: no cost model for provider %q", p)
		}
	}
	t := &Tuner{cfg: cfg, load: max(1, cfg.Load), perHost: cfg.Size}
	t.profiles, t.errs = make([]*profile, len(cfg.Catalog)), make([]error, len(cfg.Catalog))
	if cfg.Hosts != nil {
		t.shape.Hosts = cfg.Hosts
		ranks := map[int]int{}
		for _, h := range cfg.Hosts {
			ranks[h]++
		}
		t.perHost = 1
		for _, n := range ranks {
			t.perHost = max(t.perHost, n)
		}
	}
	return t, nil
}

// Choose returns what to run.
func (t *Tuner) Choose(q Query) (Choice, error) {
	list, best, why := t.decide(q)
	if best < 0 {
		return Choice{}, t.none(q, list)
	}
	return Choice{Candidate: list[best].Candidate, Shape: t.shape, Why: why}, nil
}

// Explain returns all algorithms of the collective with their parameters, the best first and those
// that are refused last, and why the first one won (or, if it is refused, nothing).
func (t *Tuner) Explain(q Query) (cands []Candidate, why string) {
	list, best, why := t.decide(q)
	if best > 0 {
		first := list[best]
		list = slices.Insert(slices.Delete(list, best, best+1), 0, first)
	}
	for _, o := range list {
		cands = append(cands, o.Candidate)
	}
	rest := cands
	if best >= 0 {
		rest = cands[1:]
	}
	slices.SortStableFunc(rest, func(a, b Candidate) int {
		ka, kb := t.rank(a), t.rank(b)
		if ka != kb {
			return ka - kb
		}
		if a.Measured != b.Measured && ka == 0 {
			return int(a.Measured - b.Measured)
		}
		return int(a.Predicted - b.Predicted)
	})
	return cands, why
}

// rank orders measured before predicted before refused candidates.
func (t *Tuner) rank(c Candidate) int {
	switch {
	case c.Refused != "":
		return 2
	case c.Measured == 0:
		return 1
	}
	return 0
}

// decide lists the options and picks one, or −1.
func (t *Tuner) decide(q Query) (list []option, best int, why string) {
	list = t.options(q)
	best = -1
	for i := range list {
		if o := &list[i]; o.Refused == "" && o.Measured > 0 && (best < 0 || o.Measured < list[best].Measured) {
			best = i
		}
	}
	if best >= 0 {
		return list, best, "fastest of those that the tuning file has measured here"
	}
	if r := t.defaultFor(q); r != nil {
		for i := range list {
			if o := &list[i]; o.Refused == "" && o.Algorithm == r.algorithm && t.fits(r, o, q) {
				return list, i, "default for " + r.provider + ", as measured (docs/tuning.md)"
			}
		}
	}
	for i := range list {
		if o := &list[i]; o.Refused == "" && (best < 0 || o.Predicted < list[best].Predicted) {
			best = i
		}
	}
	return list, best, "shortest predicted time"
}

func (t *Tuner) none(q Query, list []option) error {
	text := ""
	for _, o := range list {
		text += fmt.Sprintf("; %s: %s", o.Algorithm, o.Refused)
	}
	return fmt.Errorf("%w: %v of %d bytes%s", ErrNone, q.Collective, q.Bytes, text)
}

// Digest identifies what is built in: catalog, constants and table. Ranks of other builds have another.
func Digest(catalog []schedule.Info) string {
	h := fnv.New64a()
	for _, in := range catalog {
		fmt.Fprintln(h, in.Name, in.Collective, in.Ordered, in.Canonical, in.InPlace, in.Uneven, in.Short)
	}
	for _, name := range []string{"shm", "loopback", "tcp", "verbs"} {
		fmt.Fprintln(h, name, model[name])
	}
	fmt.Fprintln(h, defaults, local, lendMin, profiled, crowding)
	return fmt.Sprintf("%016x", h.Sum64())
}

package collective

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/internal/link"
)

// tuning is what a communicator chooses algorithms by.
type tuning struct {
	rules  tuner.Rules
	file   *tuner.File
	digest string // of what is built in
	hosts  []int  // index of each rank's host; nil: one host
	tuner  *tuner.Tuner
}

// loadTuning reads the settings, before anybody is met.
func (c *Comm) loadTuning() (err error) {
	t := &c.tuning
	t.digest = fmt.Sprintf("%d known, %s", len(c.catalog), tuner.Digest(c.catalog))
	if t.rules, err = tuner.ParseRules(c.cfg.Algo, c.catalog); err != nil {
		return invalid("GCCL_ALGO=%s: %v", c.cfg.Algo, err)
	}
	if c.cfg.TuningFile == "" {
		return nil
	}
	if t.file, err = tuner.Load(c.cfg.TuningFile, ThisMachine()); err != nil {
		return fmt.Errorf("%w: GCCL_TUNING_FILE: %w", ErrInvalid, err)
	}
	return nil
}

// tune makes the tuner, once the hellos are known.
func (c *Comm) tune() (err error) {
	return c.cfg.shared.tune(c)
}

// newTuner makes the tuner for this communicator alone.
func (c *Comm) newTuner() (hosts []int, t *tuner.Tuner, err error) {
	at := situation(c.peers)
	at.Catalog, at.Rules, at.File = c.catalog, c.tuning.rules, c.tuning.file
	if t, err = c.cfg.tuner(at, c.geo); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInternal, err)
	}
	return at.Hosts, t, nil
}

// tuner adds what the configuration says to a situation.
func (c *Config) tuner(at tuner.Config, geo link.Geometry) (*tuner.Tuner, error) {
	at.Lanes, at.Slots, at.SlotBytes = geo.Lanes-1, geo.Usable(), geo.SlotBytes
	at.Channels, at.Reproducible = c.Channels, c.Reproducible
	return tuner.New(at)
}

// TunerFor returns what a communicator of this configuration would choose by in a given situation, of
// which Size, Hosts, Load, Local and Net are looked at. The tuning file, if there is one, is read.
func TunerFor(cfg Config, at tuner.Config) (*tuner.Tuner, error) {
	if at.Size < 1 || at.Hosts != nil && len(at.Hosts) != at.Size {
		return nil, invalid("%d ranks, %d hosts named", at.Size, len(at.Hosts))
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.defaults()
	c := Comm{cfg: cfg, catalog: catalog()}
	if err := c.loadTuning(); err != nil {
		return nil, err
	}
	at.Catalog, at.Rules, at.File = c.catalog, c.tuning.rules, c.tuning.file
	peers := make([]hello, at.Size)
	for r := range peers {
		peers[r].Providers = []string{at.Local}
		if at.Hosts != nil {
			peers[r].HostID = fmt.Sprint(at.Hosts[r])
		}
	}
	t, err := cfg.tuner(at, geometry(&cfg, peers))
	if err != nil {
		return nil, invalid("%v", err)
	}
	return t, nil
}

// situation is what the hellos say about places: who shares a host, how many ranks share a core, and
// what carries messages inside and between hosts. If that differs from pair to pair, it is the one that
// rank 0 likes least. It looks at hellos alone, so that every rank finds the same.
func situation(hs []hello) tuner.Config {
	cfg := tuner.Config{Size: len(hs), Hosts: make([]int, len(hs)), Load: 1}
	// Ranks with the same providers on the same host are alike: look at one of each, and at whether
	// there are two.
	type kind struct{ host, providers string }
	index := map[string]int{}
	kinds := map[kind][]int{} // first two ranks
	var order []kind
	for r := range hs {
		h, known := index[hs[r].HostID]
		if !known {
			h = len(index)
			index[hs[r].HostID] = h
		}
		cfg.Hosts[r] = h
		k := kind{hs[r].HostID, fmt.Sprint(hs[r].Providers)}
		if kinds[k] == nil {
			order = append(order, k)
		}
		if len(kinds[k]) < 2 {
			kinds[k] = append(kinds[k], r)
		}
	}
	for _, p := range places(hs, hostOf) {
		n := max(1, p.cores.Count())
		cfg.Load = max(cfg.Load, (p.ranks+n-1)/n)
	}
	var local, net worst
	for i, a := range order {
		for _, b := range order[i:] {
			x, y := kinds[a][0], kinds[b][len(kinds[b])-1]
			if x == y {
				continue
			}
			name := between(hs[0].Providers, &hs[x], &hs[y])
			if a.host == b.host {
				local.see(name, hs[0].Providers)
			} else {
				net.see(name, hs[0].Providers)
			}
		}
	}
	if len(index) == 1 {
		cfg.Hosts = nil
	}
	cfg.Local, cfg.Net = local.name, net.name
	if cfg.Local == "" {
		cfg.Local = cfg.Net
	}
	if cfg.Net == "" {
		cfg.Net = cfg.Local
	}
	if cfg.Local == "" { // one rank, or nothing connects them, which connect says
		cfg.Local, cfg.Net = "shm", "shm"
	}
	return cfg
}

// worst keeps the last in order of some names.
type worst struct {
	name string
	at   int
}

func (w *worst) see(name string, order []string) {
	for i, n := range order {
		if n == name && (w.name == "" || i > w.at) {
			w.name, w.at = name, i
		}
	}
}

// Candidates lists the ways to make a call, as [PlanInfo.Candidates] does, for measuring them with
// [Comm.PrepareAs].
func (c *Comm) Candidates(call Call) ([]tuner.Candidate, error) {
	info, err := c.Plan(call)
	return info.Candidates, err
}

// PrepareAs is Prepare by a given one of the call's [Comm.Candidates] and not by the one that the
// communicator would choose; ErrInvalid if it is none of them. All ranks must use the same for the same call.
func (c *Comm) PrepareAs(call Call, cand tuner.Candidate) (*Prepared, error) {
	if call.Kind >= Barrier {
		return nil, invalid("%v by %v: there is nothing to choose", call, cand)
	}
	return c.prepareBy(call, func(key planKey) (choice, error) {
		known, _ := c.tuning.tuner.Explain(c.query(key))
		if !slices.ContainsFunc(known, func(k tuner.Candidate) bool {
			return k.Refused == "" && k.Index == cand.Index && k.Algorithm == cand.Algorithm && k.Channels == cand.Channels && k.Chunk == cand.Chunk
		}) {
			return choice{}, invalid("%v by %v: not one of its candidates", call, cand)
		}
		return c.chosen(key, cand), nil
	})
}

// prepareBy is Prepare by what choose says.
func (c *Comm) prepareBy(call Call, choose func(planKey) (choice, error)) (*Prepared, error) {
	p := &Prepared{c: c, call: call}
	h := c.queue.put(func() error {
		if err := c.usable(); err != nil {
			return err
		}
		if err := c.check(&p.call, &c.sh); err != nil {
			return err
		}
		key := c.keyFor(&p.call, &c.sh)
		ch, err := choose(key)
		if err != nil {
			return err
		}
		p.plan, err = c.compile(key, &c.sh, ch)
		return err
	})
	<-h.done
	if h.err != nil {
		return nil, h.err
	}
	return p, nil
}

// TuningEntry is a measurement of a candidate, for a tuning file.
func (c *Comm) TuningEntry(call Call, cand tuner.Candidate, nanos int64) (e tuner.Entry, err error) {
	h := c.queue.put(func() error {
		if err := c.check(&call, &c.sh); err != nil {
			return err
		}
		e = c.tuning.tuner.Entry(c.query(c.keyFor(&call, &c.sh)), cand, nanos)
		return nil
	})
	<-h.done
	return e, h.err
}

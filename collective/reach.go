package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/schedule"
)

// lazySize is the most ranks of a communicator whose links are all made at once. Beyond, they cost time and
// memory with the square of the size, and most are never used: 16 processes on 2 cores took 4.4 s for all of
// them, and 0.5 s of processor time without.
const lazySize = 8

// lazy decides, from what the ranks have agreed on, whether links are made when a call first wants them.
// It needs ports by which ranks reach each other.
func lazy(cfg *Config, peers []hello) bool {
	for i := range peers {
		if len(peers[i].Addrs) == 0 {
			return false
		}
	}
	if cfg.Lazy == 0 {
		return len(peers) > lazySize
	}
	return cfg.Lazy > 0
}

// openPairs lets other ranks meet this one to make links.
func (c *Comm) openPairs() {
	addrs := make([][]string, c.size)
	for r := range c.peers {
		addrs[r] = c.peers[r].Addrs
	}
	var silence time.Duration
	if c.cfg.network == nil {
		silence = c.heartbeat()
	}
	c.pairs = bootstrap.OpenPairs(c.standby.port.Port, bootstrap.Circle{Secret: c.cfg.Bootstrap.Secret, Rank: c.rank, Size: c.size,
		RunID: fmt.Sprintf("%s/links/%016x", c.cfg.Bootstrap.RunID, c.epoch)}, addrs, silence)
}

// unmet is the failure to make a link.
type unmet struct{ err error }

func (u *unmet) Error() string { return u.err.Error() }
func (u *unmet) Unwrap() error { return u.err }

// unbound is a program of a plan that waits for links.
type unbound struct {
	prog   *executor.Program
	layout executor.Layout
	lane   int
	peers  []int // ascending
}

// bind binds a program to links, or, if there are not all, has the first run of the plan do it.
func (c *Comm) bind(p *planned, prog *executor.Program, lay executor.Layout, lane int) (err error) {
	u := unbound{prog: prog, layout: lay, lane: lane}
	for _, l := range prog.Schedule.Lanes {
		for _, s := range l {
			if s.Op == schedule.Send || s.Op == schedule.Recv || s.Op == schedule.RecvReduce {
				u.peers = append(u.peers, s.Peer)
			}
		}
	}
	slices.Sort(u.peers)
	u.peers = slices.Compact(u.peers)
	for _, r := range u.peers {
		if c.mesh.Peer(r) == nil {
			p.later = &u
			return nil
		}
	}
	p.plan, err = prog.Plan(c.mesh, lay, lane)
	return err
}

// reach makes the links that plans want and that are not there, and binds the plans. The ranks at the
// other ends do the same when they come to the same call, and then this one goes on.
func (c *Comm) reach(ctx context.Context, plans ...*planned) error {
	var ranks []int
	for _, p := range plans {
		if p.later == nil {
			continue
		}
		for _, r := range p.later.peers {
			if c.mesh.Peer(r) == nil {
				ranks = append(ranks, r)
			}
		}
	}
	slices.Sort(ranks)
	if ranks = slices.Compact(ranks); len(ranks) > 0 {
		if err := c.join(ctx, ranks); err != nil {
			return err
		}
	}
	for _, p := range plans {
		u := p.later
		if u == nil {
			continue
		}
		var err error
		if p.plan, err = u.prog.Plan(c.mesh, u.layout, u.lane); err != nil {
			return fmt.Errorf("%w: %s: %v", ErrInternal, p.algorithm, err)
		}
		p.later = nil
	}
	return nil
}

// Bounds of the pause between two looks at what else happens while links are made.
const (
	firstTend = time.Millisecond
	lastTend  = 100 * time.Millisecond
)

// attempt is an attempt to make links.
type attempt struct {
	joining  *link.Joining
	meetings sync.WaitGroup
	met      chan met
	unwatch  context.CancelFunc // ends the watch of ranks that have been met
}

// met is the end of a meeting, or what was seen of a rank after it.
type met struct {
	rank int
	err  error
}

// join adds ranks to the mesh. If that fails, the meetings in progress go on until retreat.
func (c *Comm) join(ctx context.Context, ranks []int) error {
	if c.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	if err := c.reserveFiles(ranks); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	j, err := c.mesh.Join(ranks)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	a := &attempt{joining: j, met: make(chan met, 2*len(ranks))}
	c.attempt = a
	var watching context.Context
	watching, a.unwatch = context.WithCancel(context.Background())
	life := context.WithoutCancel(ctx)
	for _, r := range ranks {
		a.meetings.Go(func() {
			err := c.pairs.Meet(life, r, j.Blob(r), func(ctx context.Context, theirs []byte) error { return j.Connect(ctx, r, theirs) })
			a.met <- met{r, err}
			if err == nil {
				if err = c.pairs.Watch(watching, r); err != nil { // the link tells nothing before Done
					a.met <- met{r, err}
				}
			}
		})
	}
	if err := c.await(ctx, a, ranks); err != nil {
		return err
	}
	c.attempt = nil
	a.unwatch()
	a.meetings.Wait()
	j.Done()
	for _, r := range ranks {
		c.engine.Joined(c.mesh.Peer(r).Receiver(c.geo.Lanes - 1))
	}
	return c.showWindows(ctx, ranks)
}

// showWindows maps the parts of the windows that ranks have which have joined.
func (c *Comm) showWindows(ctx context.Context, ranks []int) error {
	if len(c.windows.list) == 0 {
		return nil
	}
	ctx, cancel := c.unbroken(ctx)
	defer cancel()
	var shows []func()
	for _, r := range ranks {
		for i := range c.windows.list {
			show, err := c.fetchWindow(ctx, &c.windows.list[i], r)
			if err != nil {
				return err
			}
			shows = append(shows, show)
		}
	}
	for _, show := range shows {
		show()
	}
	return nil
}

// fetchWindow is window.fetch from a rank. Meanwhile it looks after the links: a rank that is stopped does not answer. What other ranks
// do, which may have closed their communicators, matters to calls that need them.
func (c *Comm) fetchWindow(ctx context.Context, w *window, rank int) (show func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		show, err = w.fetch(ctx, c.mesh.Peer(rank))
	}()
	timer := time.NewTimer(firstTend)
	defer timer.Stop()
	for pause := firstTend; ; {
		select {
		case <-fetched:
			return show, err
		case <-timer.C:
		}
		why := c.engine.Tend()
		broken := why != nil
		if !broken {
			why = c.lookAt(rank)
		}
		if why != nil {
			cancel()
			if <-fetched; err != nil || broken { // else it has been mapped before the rank was gone
				return nil, why
			}
			return show, nil
		}
		pause = min(2*pause, lastTend)
		timer.Reset(pause)
	}
}

// retreat tells the ranks that this one meets, has met in this attempt, or would have met, why it has failed,
// and gives up the links that were being made.
func (c *Comm) retreat(n *link.Notice) {
	c.tellPairs(n)
	if a := c.attempt; a != nil {
		c.attempt = nil
		a.unwatch()
		a.meetings.Wait()
		a.joining.Retreat(c.own(n))
	}
}

// tellPairs ends the making of links, for a reason that all who want one are told.
func (c *Comm) tellPairs(n *link.Notice) {
	if c.pairs != nil {
		c.pairs.Fail(c.own(n).Marshal())
	}
}

// own is a notice as this rank tells it to others.
func (c *Comm) own(n *link.Notice) *link.Notice {
	mine := *n
	mine.From = c.rank
	return &mine
}

// await waits for meetings, and meanwhile does what a rank that waits must.
func (c *Comm) await(ctx context.Context, a *attempt, ranks []int) error {
	timer := time.NewTimer(firstTend)
	defer timer.Stop()
	for pause, missing := firstTend, slices.Clone(ranks); len(missing) > 0; {
		select {
		case m := <-a.met:
			if m.err != nil {
				return c.unmet(m)
			}
			missing = slices.DeleteFunc(missing, func(r int) bool { return r == m.rank })
		case <-timer.C:
			if err := c.engine.Tend(); err != nil {
				return err
			}
			pause = min(2*pause, lastTend)
			timer.Reset(pause)
		case <-ctx.Done():
			return &unmet{fmt.Errorf("no link to %s: it has not come to a call of this rank: %w", c.describeAll(missing, mostNamed), context.Cause(ctx))}
		}
	}
	return nil
}

// describeAll names ranks, at most so many of them.
func (c *Comm) describeAll(ranks []int, most int) string {
	s := ""
	for i, r := range ranks {
		if i == most {
			return fmt.Sprintf("%s and %d more", s, len(ranks)-i)
		}
		if i > 0 {
			s += ", "
		}
		s += c.describe(r)
	}
	return s
}

// mostNamed is how many ranks to which there are no links a message names.
const mostNamed = 8

// unmet says who is to blame for a meeting that failed.
func (c *Comm) unmet(m met) error {
	var told *bootstrap.Told
	culprit, what := -1, m.err
	if blamed := (*bootstrap.RankError)(nil); errors.As(m.err, &blamed) {
		culprit, what = blamed.Rank, blamed.Err
	}
	switch {
	case errors.As(m.err, &told):
		n, err := link.ParseNotice(told.Word, told.Rank, c.size)
		if err != nil {
			return &unmet{err}
		}
		return &executor.Gone{Notice: c.own(n)}
	case errors.Is(m.err, rdma.ErrPeerLost):
		culprit = m.rank
	case !errors.Is(m.err, bootstrap.ErrPeerLost) || culprit < 0:
		return &unmet{m.err}
	}
	return &executor.Gone{Notice: &link.Notice{Cause: link.CauseLost, From: c.rank, Culprit: culprit,
		Text: fmt.Sprintf("%s: %v", c.describe(culprit), what)}}
}

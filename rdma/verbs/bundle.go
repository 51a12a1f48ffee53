package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/internal/rail"
)

// bundle is an endpoint of several rails: each is an endpoint of a port, with its own queue pairs, keep-alive and
// faults.
//
// The writes of a direction are numbered from 0, those with immediate data counted as well. The first rail that is
// left leads: short writes go by it, in order. A long one is cut into a piece for each rail, of which the leader's
// comes in order, and the others say their number by an immediate. Immediate data goes as an announcement after the
// write's bytes, by the leader: a few words, written into the peer's inbox with an immediate of the bundle's own. They tell
// the number of the write, and how many long ones were before it: the peer delivers the immediate when as many pieces
// have come by every rail. A write whose range in the peer's memory another one's covers that is under way is not cut,
// and waits for pieces of it, so that the last one posted stays.
//
// When an end loses a rail, its queue pair is in the error state and nothing more lands by it. The end tells the
// peer by all others, with the number of writes before the next that it has to deliver, and delivers nothing from
// then on. The peer gives the rail up as well. Who has heard that the peer has given up the same rails (rail.Sender),
// and has the cards' acknowledgements of all that it posted on those that are left, begins again, behind a mark, with the
// first write that is neither delivered nor acknowledged. So whatever is sent twice is written over bytes that the peer has
// not been told of, and nothing late comes after it: what was sent on the lost rail ended with its queue pair, and the
// rest is acknowledged. What lies before that write has landed, so the mark has the peer deliver it.
type bundle struct {
	dev  *Rails
	id   uint32
	cq   *railsQueue
	opts rdma.EndpointOptions
	subs []*endpoint // by rail

	mu    sync.Mutex // guards what follows; the rails' own locks are inside
	state state      // without waiting
	cause error
	all   rail.Set // that the peer has, too
	lost  []lostRail

	inbox, staging *railsRegion // what the peer announces; what this end does
	peer           bundleAddress

	out outgoing
	in  incoming
}

// lostRail is a rail that this end has given up.
type lostRail struct {
	index int
	why   error
}

// errGivenUp is why this end gives up a rail that works here.
var errGivenUp = fmt.Errorf("%w: the peer has given it up", rdma.ErrPeerLost)

// NewEndpoint makes the rails.
func (r *Rails) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	q, ok := cq.(*railsQueue)
	if !ok || q.dev != r {
		return nil, fmt.Errorf("verbs: %v: the completion queue is not of this device", r)
	}
	if opts.RecvDepth == 0 {
		opts.RecvDepth = defaultRecvDepth
	}
	if opts.RecvDepth < 0 || opts.RecvDepth > maxInbox {
		return nil, fmt.Errorf("verbs: %v: receive depth %d, not within 1 to %d", r, opts.RecvDepth, maxInbox)
	}
	b := &bundle{dev: r, cq: q, opts: opts}
	x, err := r.Alloc(inboxBytes(opts.RecvDepth), "announcements")
	if err != nil {
		return nil, err
	}
	b.inbox = x.(*railsRegion)
	for i := range r.n {
		// For each write with immediate an announcement and the pieces of two long writes, at most, are unpolled.
		e, err := r.ports[r.port(i)].newEndpoint(q.queues[r.port(i)], rdma.EndpointOptions{
			RecvDepth: 3*opts.RecvDepth + 2 + noticeSends,
			OnLost:    func(err error) { b.railLost(i, err) },
		}, b, i)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.subs = append(b.subs, e)
	}
	b.id = b.subs[0].id
	b.out.init(r.attr.MaxPosted, r.attr.MaxInline)
	r.mu.Lock()
	gone := r.closed
	if !gone {
		r.bundles[b] = struct{}{}
	}
	r.mu.Unlock()
	if gone {
		return nil, errors.Join(r.ports[0].closedError(), b.Close())
	}
	return b, nil
}

func (b *bundle) ID() uint32 { return b.id }

func (b *bundle) String() string {
	to := "unconnected"
	if p := b.subs[0].peer.Load(); p != nil {
		to = "to " + *p
	}
	return fmt.Sprintf("endpoint %#x on %v (%d queue pairs, the first %s)", b.id, b.dev, len(b.subs), to)
}

// Connect connects the rails that both ends have.
func (b *bundle) Connect(ctx context.Context, remote []byte) error {
	a, err := decodeBundleAddress(remote)
	if err != nil {
		return err
	}
	if err := b.meet(a); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, e := range b.subs[:b.all.Len()] {
		g.Go(func() error { return e.Connect(ctx, a.rails[i]) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == fresh {
		b.state = ready
	}
	b.pump()
	return b.failureLocked()
}

// meet notes what the peer has.
func (b *bundle) meet(a *bundleAddress) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == closed:
		return b.closedError()
	case b.all != 0:
		return fmt.Errorf("verbs: %v is connected already", b)
	}
	x, err := b.dev.Alloc(inboxBytes(a.depth), "announcements")
	if err != nil {
		return err
	}
	b.staging, b.peer = x.(*railsRegion), *a
	b.all = rail.First(min(len(b.subs), len(a.rails)))
	b.in.began = b.all
	for _, e := range b.subs[b.all.Len():] {
		_ = e.Close()
	}
	return nil
}

func (b *bundle) closedError() error { return fmt.Errorf("verbs: %w: %v", rdma.ErrClosed, b) }

// failureLocked says why the bundle cannot be used, nil if it can.
func (b *bundle) failureLocked() error {
	switch b.state {
	case ready:
		return nil
	case fresh:
		return fmt.Errorf("verbs: %v is not connected", b)
	case closed:
		return b.closedError()
	}
	return b.cause
}

// live is the rails that are left. mu is held.
func (b *bundle) live() rail.Set { return b.all &^ b.out.send.Dead() }

// railLost gives a rail up, whose queue pair is in the error state. It is called by the rail, from any goroutine.
func (b *bundle) railLost(i int, why error) {
	b.mu.Lock()
	if b.state >= broken || !b.live().Has(i) {
		b.mu.Unlock()
		return
	}
	b.lost = append(b.lost, lostRail{i, why})
	b.out.send.Lose(i)
	b.in.frozen = true
	if errors.Is(why, rdma.ErrAccess) { // not the rail's fault, and another might let it pass
		b.refuse("%w", why)
	}
	last := b.live() == 0
	if last {
		b.state = broken
		b.cause = b.allLost()
	} else {
		b.tellLost()
		b.reconcile()
	}
	cause := b.cause
	b.mu.Unlock()
	b.cq.revisit(b)
	b.cq.ringOnce()
	if last && b.opts.OnLost != nil {
		b.opts.OnLost(cause)
	}
}

// allLost is why a bundle has no rail any more: what became of each. mu is held.
func (b *bundle) allLost() error {
	err, sep := fmt.Errorf("verbs: %v: %w: all %d queue pairs of the connection failed", b, rdma.ErrPeerLost, len(b.lost)), ":"
	for _, l := range b.lost {
		err, sep = fmt.Errorf("%w%s %d: %w", err, sep, l.index, l.why), ";"
	}
	return err
}

// refuse breaks the connection because of what an end has posted. mu is held.
func (b *bundle) refuse(format string, args ...any) {
	err := fmt.Errorf("verbs: %v: %w: %w", b, rdma.ErrPeerLost, fmt.Errorf(format, args...))
	for i, e := range b.subs {
		if b.live().Has(i) {
			e.lost(err)
		}
	}
}

// Close breaks the connection at once.
func (b *bundle) Close() error {
	b.mu.Lock()
	before := b.state
	b.state = closed
	b.mu.Unlock()
	if before == closed {
		return nil
	}
	b.dev.mu.Lock()
	delete(b.dev.bundles, b)
	b.dev.mu.Unlock()
	for _, e := range b.subs {
		_ = e.Close()
	}
	var errs []error
	for _, x := range []*railsRegion{b.inbox, b.staging} {
		if x != nil {
			errs = append(errs, x.Close())
		}
	}
	return errors.Join(errs...)
}

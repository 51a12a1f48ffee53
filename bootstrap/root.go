package bootstrap

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// latecomers bounds how long a root whose group cannot be formed stays to tell those ranks why that
// have not registered yet.
const latecomers = 2 * time.Second

// registry is the root's record of who has registered.
type registry struct {
	g    *group
	cfg  *Config
	door *meet.Door
	self wire.Identity
	ids  []wire.Identity // by rank
	told int             // ranks that know, or will be told, how it ends

	mu      sync.Mutex
	members []*link // by rank; nil: has not registered; rank 0 stays nil
}

// register accepts all other ranks of g at d. On error every rank that has registered knows why.
func register(ctx context.Context, g *group, d *meet.Door, self wire.Identity, cfg *Config) (*registry, error) {
	r := &registry{g: g, cfg: cfg, door: d, self: self, members: make([]*link, g.size), ids: make([]wire.Identity, g.size)}
	r.ids[0] = self
	g.setExplain(r.explain)
	defer g.setExplain(nil)
	defer meet.Remind(firstAlarm, r.alarm)()
	for r.told < g.size-1 {
		var err error
		select {
		case a := <-d.Arrivals:
			err = r.admit(a)
		case <-g.life.Done():
			err = context.Cause(g.life)
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", ErrTimeout, context.Cause(ctx))
		}
		if err != nil {
			return nil, r.refuse(ctx, d, err)
		}
	}
	return r, nil
}

// admit registers one rank, or says why the group cannot be formed.
func (r *registry) admit(a meet.Arrival) error {
	rank, remote := int(a.Hello.Rank), a.Conn.Net().RemoteAddr()
	if int(a.Hello.Size) != r.g.size || rank >= r.g.size {
		l := newLink(rank, a.Conn, a.ID, r.g.size)
		err := &RankError{Rank: rank, Err: fmt.Errorf("%w: it (%s, from %v) was started for a group of %d ranks, rank 0 (%s) for %d",
			ErrMismatch, l.who, remote, a.Hello.Size, processOf(r.self), r.g.size)}
		return r.turnAway(l, err)
	}
	l := newLink(rank, a.Conn, a.ID, r.g.size)
	if rank == 0 || r.members[rank] != nil {
		err := &RankError{Rank: rank, Err: fmt.Errorf("%w: two processes claim this rank: %s and %s (from %v)",
			ErrMismatch, processOf(r.ids[rank]), l.who, remote)}
		return r.turnAway(l, err)
	}
	r.mu.Lock()
	r.members[rank] = l
	r.mu.Unlock()
	r.ids[rank] = a.ID
	r.told++
	l.passing = r.g.childIndex(rank) < 0
	return r.g.add(l)
}

// turnAway fails the group for err and lets the rank behind l know, which is not a member.
func (r *registry) turnAway(l *link, err error) error {
	err = r.g.fail(err)
	r.tell(l, err)
	return err
}

// tell sends the reason of the failure to a process that is not a member, and hangs up.
func (r *registry) tell(l *link, err error) {
	f := failureOf(err)
	l.sendLast(wire.Frame{Type: wire.Fault, Payload: f.Append(nil)})
	l.conn.Net().Close()
}

// refuse ends the registration for err: those who have registered are told, and for a while those who
// still come.
func (r *registry) refuse(ctx context.Context, d *meet.Door, err error) error {
	err = r.g.fail(err)
	ctx, cancel := context.WithTimeout(ctx, latecomers)
	defer cancel()
	for r.told < r.g.size-1 {
		select {
		case a := <-d.Arrivals:
			r.told++
			r.tell(newLink(int(a.Hello.Rank), a.Conn, a.ID, r.g.size), err)
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// explain adds to a failure which ranks had not registered.
func (r *registry) explain(err error) error {
	missing := r.missing()
	if len(missing) == 0 {
		return err
	}
	text := fmt.Sprintf("of %d ranks, %s had not registered%s", r.g.size, rankList(missing), r.strangers(missing))
	if blamed, ok := err.(*RankError); ok {
		return &RankError{Rank: blamed.Rank, Err: fmt.Errorf("%w; %s", blamed.Err, text)}
	}
	return fmt.Errorf("%w; %s", err, text)
}

// assign tells every rank its parent and makes the root's own children its links.
func (r *registry) assign(ctx context.Context) error {
	g := r.g
	stop := context.AfterFunc(ctx, func() {
		g.fail(fmt.Errorf("%w while telling the ranks their places: %w", ErrTimeout, context.Cause(ctx)))
	})
	defer stop()
	for rank := 1; rank < g.size; rank++ {
		parent := placeOf(rank, g.size, fanout(g.size)).parent
		a := wire.Assignment{Parent: uint32(parent), Identity: r.ids[parent]}
		if err := g.transmit(r.members[rank], wire.Frame{Type: wire.Assign, Payload: a.Append(nil)}, nil); err != nil {
			return err
		}
	}
	for _, s := range g.place.children {
		l := r.members[s.first]
		l.span = s
		g.children = append(g.children, l)
	}
	return nil
}

func (g *group) setExplain(f func(error) error) {
	g.mu.Lock()
	g.explain = f
	g.mu.Unlock()
}

func processOf(id wire.Identity) string { return fmt.Sprintf("pid %d on %s", id.PID, id.Host) }

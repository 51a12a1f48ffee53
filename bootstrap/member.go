package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// reach connects to the root by its addresses and authenticates both ends.
func reach(ctx context.Context, cfg *Config, targets []meet.Target) (*wire.Conn, error) {
	badge := meet.NewBadge(cfg.Secret, cfg.RunID, cfg.Epoch)
	root := &meet.Caller{
		Badge: badge, Targets: targets, What: "rank 0", Remote: cfg.scattered(), Decided: cfg.Port == nil, Log: cfg.Alarm,
		Hello: wire.Hello{
			Purpose: wire.Register, Run: badge.Run, Epoch: badge.Epoch,
			Rank: uint32(cfg.Rank), Size: uint32(cfg.Size),
		},
	}
	conn, err := root.Call(ctx)
	if errors.Is(err, meet.ErrOther) {
		return nil, fmt.Errorf("%w: %w; this rank (pid %d) has %s and looks for rank 0 at %s: are GCCL_RUN_ID, GCCL_EPOCH and GCCL_ROOT the same on all ranks?",
			ErrMismatch, err, os.Getpid(), cfg.job(), cfg.Root)
	}
	return conn, err
}

// join takes g from a connection to the root to a rank with a parent and children.
func join(ctx context.Context, g *group, cfg *Config, conn *wire.Conn, self wire.Identity) error {
	var err error
	onLoopback := false
	if reached, err := netip.ParseAddrPort(conn.Net().RemoteAddr().String()); err == nil {
		onLoopback = reached.Addr().IsLoopback()
	}
	var d *meet.Door
	if len(g.place.children) > 0 {
		if d, self.Addrs, err = openParentDoor(ctx, g, cfg, conn.Net().LocalAddr(), onLoopback && cfg.oneHost(), onLoopback && cfg.loopbackRoot()); err != nil {
			conn.Net().Close()
			return err
		}
		defer d.Close()
	}
	registration, assignment, err := enrol(ctx, g, conn, self)
	if err != nil {
		return err
	}
	if err := g.attach(ctx, cfg, registration, assignment, self); err != nil {
		return g.fail(err)
	}
	if d != nil {
		if err := g.adopt(ctx, d); err != nil {
			return g.fail(err)
		}
	}
	if _, err := g.collective(ctx, wire.Barrier, nil); err != nil {
		return err
	}
	if g.parent != registration {
		g.leave(registration)
	}
	return nil
}

// openParentDoor lets a rank with children accept them, on loopback, too, or on loopback only. It returns the addresses to tell them.
func openParentDoor(ctx context.Context, g *group, cfg *Config, seenFrom net.Addr, loopback, only bool) (*meet.Door, []string, error) {
	var preferred netip.Addr
	if ap, err := netip.ParseAddrPort(seenFrom.String()); err == nil {
		preferred = ap.Addr()
	}
	listeners, err := listenAny(ctx, cfg, only)
	if err != nil {
		return nil, nil, err
	}
	addrs, err := published(cfg, listeners, preferred, loopback)
	if err != nil {
		closeAll(listeners)
		return nil, nil, err
	}
	return meet.Open(meet.NewBadge(cfg.Secret, cfg.RunID, cfg.Epoch), wire.Link, uint32(g.rank), g.log, listeners), addrs, nil
}

// enrol introduces this rank to the root and waits until all have registered.
func enrol(ctx context.Context, g *group, conn *wire.Conn, self wire.Identity) (*link, wire.Assignment, error) {
	var none wire.Assignment
	l := newLink(0, conn, wire.Identity{}, g.size)
	l.who = fmt.Sprintf("the root at %v", conn.Net().RemoteAddr())
	l.passing = g.place.parent != 0
	if err := l.send(wire.Frame{Type: wire.Introduce, Payload: self.Append(nil)}); err != nil {
		conn.Net().Close()
		return nil, none, g.fail(l.lost(g.rank, err))
	}
	if err := g.add(l); err != nil {
		return nil, none, err
	}
	f, err := g.orders(ctx, l)
	if err != nil {
		return nil, none, err
	}
	a, err := wire.ParseAssignment(f.Payload)
	if f.Type != wire.Assign || err != nil || int(a.Parent) != g.place.parent {
		return nil, none, g.fail(l.lost(g.rank, errors.New("its assignment makes no sense")))
	}
	return l, a, nil
}

// orders waits for the root's word on the registration. When ctx is done, the root is told and has a
// moment to answer who was missing.
func (g *group) orders(ctx context.Context, root *link) (wire.Frame, error) {
	select {
	case f := <-root.inbox:
		return f, nil
	case <-g.life.Done():
		return wire.Frame{}, context.Cause(g.life)
	case <-ctx.Done():
	}
	err := fmt.Errorf("%w: rank %d had registered with %s and gave up waiting for the others: %w",
		ErrTimeout, g.rank, root.who, context.Cause(ctx))
	f := failureOf(err)
	root.sendLast(wire.Frame{Type: wire.Fault, Payload: f.Append(nil)})
	select {
	case <-g.life.Done():
	case <-time.After(farewell):
	}
	return wire.Frame{}, g.fail(err)
}

// attach links this rank to its parent, over the registration's connection if that is the root.
func (g *group) attach(ctx context.Context, cfg *Config, registration *link, a wire.Assignment, self wire.Identity) error {
	if a.Parent == 0 {
		g.parent = registration
		return nil
	}
	badge := meet.NewBadge(cfg.Secret, cfg.RunID, cfg.Epoch)
	c := &meet.Caller{
		Badge: badge, What: fmt.Sprintf("rank %d", a.Parent), Log: cfg.Alarm,
		Hello: wire.Hello{
			Purpose: wire.Link, Run: badge.Run, Epoch: badge.Epoch,
			Rank: uint32(g.rank), Size: uint32(g.size), Target: a.Parent,
		},
	}
	for _, addr := range a.Addrs {
		ap, err := netip.ParseAddrPort(addr)
		if err != nil {
			return &RankError{Rank: int(a.Parent), Err: fmt.Errorf("%w: it told the address %q", ErrMismatch, addr)}
		}
		c.Targets = append(c.Targets, meet.Target{Host: ap.Addr().String(), First: int(ap.Port()), Last: int(ap.Port())})
	}
	ctx, cancel := g.within(ctx)
	defer cancel()
	conn, err := c.Call(ctx)
	if err != nil {
		return err
	}
	l := newLink(int(a.Parent), conn, a.Identity, g.size)
	if err := l.send(wire.Frame{Type: wire.Introduce, Payload: self.Append(nil)}); err != nil {
		conn.Net().Close()
		return l.lost(g.rank, err)
	}
	g.parent = l
	return g.add(l)
}

// adopt accepts the links of all children.
func (g *group) adopt(ctx context.Context, d *meet.Door) error {
	found := make([]*link, len(g.place.children))
	for left := len(found); left > 0; {
		select {
		case a := <-d.Arrivals:
			i := g.childIndex(int(a.Hello.Rank))
			if i < 0 || found[i] != nil || int(a.Hello.Size) != g.size {
				a.Conn.Net().Close() // not one that the root sent
				continue
			}
			l := newLink(int(a.Hello.Rank), a.Conn, a.ID, g.size)
			l.span = g.place.children[i]
			found[i] = l
			if err := g.add(l); err != nil {
				return err
			}
			left--
		case <-g.life.Done():
			return context.Cause(g.life)
		case <-ctx.Done():
			var missing []int
			for i, l := range found {
				if l == nil {
					missing = append(missing, g.place.children[i].first)
				}
			}
			return fmt.Errorf("%w: rank %d waited for %s to link to it: %w",
				ErrTimeout, g.rank, rankList(missing), context.Cause(ctx))
		}
	}
	g.children = found
	return nil
}

// leave says bye on a link that is no longer needed.
func (g *group) leave(l *link) {
	l.dropped.Store(true) // first, as the peer hangs up on hearing the bye
	l.sendLast(wire.Frame{Type: wire.Bye})
	g.drop(l)
}

// within returns ctx, ended also by the end of the group.
func (g *group) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.life, func() { cancel(context.Cause(g.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// childIndex returns which child of this rank the given rank is, or −1.
func (g *group) childIndex(rank int) int {
	for i, s := range g.place.children {
		if s.first == rank {
			return i
		}
	}
	return -1
}

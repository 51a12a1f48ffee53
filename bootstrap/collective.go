package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// collective gathers mine, which it may keep, from every rank and gives all to every rank. A barrier
// is the same without data.
func (g *group) collective(ctx context.Context, op wire.Op, mine []byte) ([][]byte, error) {
	g.turn <- struct{}{}
	defer func() { g.completing.Store(false); <-g.turn }()
	seq := g.seq
	g.seq++
	// When ctx is done the group fails, and that ends every wait and every write below.
	stop := context.AfterFunc(ctx, func() { g.giveUp(ctx, op, seq) })
	defer stop()
	table, err := g.exchange(op, seq, mine)
	if err != nil {
		return nil, fmt.Errorf("%v #%d on rank %d: %w", op, seq, g.rank, err)
	}
	return table, nil
}

func (g *group) exchange(op wire.Op, seq uint64, mine []byte) ([][]byte, error) {
	if g.life.Err() != nil {
		return nil, context.Cause(g.life)
	}
	up := wire.Table{First: uint32(g.rank), Data: make([][]byte, 1, g.place.count)}
	up.Data[0] = mine
	if err := g.gather(op, seq, &up); err != nil {
		return nil, err
	}
	if g.parent == nil {
		g.completing.Store(true)
		return up.Data, g.spread(wire.Frame{Type: wire.Down, Op: op, Seq: seq}, up.Parts())
	}

	g.await(span{0, g.size})
	if err := g.transmit(g.parent, wire.Frame{Type: wire.Up, Op: op, Seq: seq}, up.Parts()); err != nil {
		return nil, err
	}
	f, err := g.next(g.parent, wire.Down, op, seq)
	if err != nil {
		return nil, err
	}
	down, err := wire.ParseTable(f.Payload, 0, g.size)
	if err != nil {
		return nil, g.fail(g.parent.lost(g.rank, err))
	}
	g.await()
	return down.Data, g.spread(wire.Frame{Type: wire.Down, Op: op, Seq: seq}, [][]byte{f.Payload})
}

// gather appends the contributions of the children's subtrees to table.
func (g *group) gather(op wire.Op, seq uint64, table *wire.Table) error {
	for i, c := range g.children {
		g.await(g.place.children[i:]...)
		f, err := g.next(c, wire.Up, op, seq)
		if err != nil {
			return err
		}
		part, err := wire.ParseTable(f.Payload, c.first, c.count)
		if err != nil {
			return g.fail(c.lost(g.rank, err))
		}
		table.Data = append(table.Data, part.Data...)
	}
	g.await()
	return nil
}

// spread sends a frame to all children.
func (g *group) spread(f wire.Frame, parts [][]byte) error {
	for _, c := range g.children {
		if err := g.transmit(c, f, parts); err != nil {
			return err
		}
	}
	return nil
}

// transmit sends a frame. If that fails, the reader of the link knows best why: what the peer said last
// is still to be read.
func (g *group) transmit(l *link, f wire.Frame, parts [][]byte) error {
	err := l.send(f, parts...)
	if err == nil {
		return nil
	}
	select {
	case <-l.read:
	case <-time.After(farewell):
	case <-g.life.Done():
	}
	for drained := false; !drained; {
		select {
		case gone := <-g.left:
			g.gone[gone] = true
		default:
			drained = true
		}
	}
	if g.gone[l] {
		return g.fail(&RankError{Rank: l.peer, Err: fmt.Errorf("%w (%s) before %v #%d", ErrPeerClosed, l.who, f.Op, f.Seq)})
	}
	return g.fail(l.lost(g.rank, err))
}

// next waits for the frame that l's peer owes to this collective.
func (g *group) next(l *link, want wire.Type, op wire.Op, seq uint64) (wire.Frame, error) {
	for {
		select {
		case f := <-l.inbox:
			return f, g.check(l, f, want, op, seq)
		default:
		}
		if err := g.needed(op, seq); err != nil {
			return wire.Frame{}, err
		}
		select {
		case f := <-l.inbox:
			return f, g.check(l, f, want, op, seq)
		case <-g.life.Done():
			return wire.Frame{}, context.Cause(g.life)
		case gone := <-g.left:
			g.gone[gone] = true
		}
	}
}

// check holds a frame against what the collective expects of l's peer.
func (g *group) check(l *link, f wire.Frame, want wire.Type, op wire.Op, seq uint64) error {
	if f.Type == want && f.Op == op && f.Seq == seq {
		return nil
	}
	return g.fail(&RankError{Rank: l.peer, Err: fmt.Errorf(
		"%w: it is in %v #%d while rank %d is in %v #%d", ErrMismatch, f.Op, f.Seq, g.rank, op, seq)})
}

// needed fails the group if a peer has left from which the collective still needs something.
func (g *group) needed(op wire.Op, seq uint64) error {
	for l := range g.gone {
		if len(l.inbox) == 0 && (l == g.parent || g.isAwaited(l)) {
			return g.fail(&RankError{Rank: l.peer, Err: fmt.Errorf(
				"%w (%s) before %v #%d", ErrPeerClosed, l.who, op, seq)})
		}
	}
	return nil
}

// await records whose contributions are still missing.
func (g *group) await(missing ...span) {
	g.mu.Lock()
	g.awaiting = missing
	g.mu.Unlock()
}

func (g *group) isAwaited(l *link) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.awaiting {
		if s == l.span {
			return true
		}
	}
	return false
}

// giveUp fails the group because the context of a collective is done.
func (g *group) giveUp(ctx context.Context, op wire.Op, seq uint64) {
	g.mu.Lock()
	var missing []int
	for _, s := range g.awaiting {
		for r := s.first; r < s.first+s.count; r++ {
			missing = append(missing, r)
		}
	}
	g.mu.Unlock()
	text := rankList(missing)
	if len(missing) == g.size {
		text = "ranks outside its subtree"
	}
	err := fmt.Errorf("%w: rank %d gave up in %v #%d, waiting for %s: %w",
		ErrTimeout, g.rank, op, seq, text, context.Cause(ctx))
	if len(missing) == 1 {
		err = &RankError{Rank: missing[0], Err: err}
	}
	g.fail(err)
}

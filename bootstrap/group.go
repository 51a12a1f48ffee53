package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// group is a rank's end of a group over TCP.
//
// Its ranks form a tree (see placeOf). A collective gathers contributions up the tree and sends the
// whole table down. Each link has a reading goroutine, so that a death is noticed whoever waits for
// whom; the first failure ends life and is told to all links.
type group struct {
	rank, size int
	place      place
	log        *zap.Logger

	// life ends when the group fails or is closed; its cause is the first error.
	life context.Context
	end  context.CancelCauseFunc

	readers sync.WaitGroup
	left    chan *link // links whose peers have said bye, after their last frame; never blocks

	mu       sync.Mutex
	links    []*link           // all that are open
	ending   bool              // the first failure or Close has happened
	explain  func(error) error // adds to a failure what only this rank knows, while that is so
	awaiting []span            // subtrees, or the root's whole tree, that the collective in progress waits for

	// completing says that the collective in progress has, or will find in its inbox, all that it
	// needs and has yet to send on.
	completing atomic.Bool

	// turn is full while a collective is in progress, which owns what follows.
	turn     chan struct{}
	seq      uint64
	parent   *link
	children []*link
	gone     map[*link]bool
}

func newGroup(cfg *Config) *group {
	g := &group{
		rank: cfg.Rank, size: cfg.Size, log: cfg.Logger,
		place: placeOf(cfg.Rank, cfg.Size, fanout(cfg.Size)),
		left:  make(chan *link, cfg.Size+1),
		gone:  make(map[*link]bool),
		turn:  make(chan struct{}, 1),
	}
	g.life, g.end = context.WithCancelCause(context.Background())
	return g
}

func (g *group) Rank() int { return g.rank }
func (g *group) Size() int { return g.size }

func (g *group) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if len(mine) > MaxPayload/g.size {
		return nil, fmt.Errorf("bootstrap: %w", g.fail(&RankError{Rank: g.rank, Err: fmt.Errorf(
			"%w: %d bytes, at most %d a rank", ErrTooLarge, len(mine), MaxPayload/g.size)}))
	}
	all, err := g.collective(ctx, wire.AllGather, slices.Clone(mine))
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return all, nil
}

func (g *group) Barrier(ctx context.Context) error {
	if _, err := g.collective(ctx, wire.Barrier, nil); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// Close says bye on every link, waits for at most lastWord, and waits for the readers to end.
func (g *group) Close() error {
	g.shutdown(ErrClosed, wire.Frame{Type: wire.Bye})
	g.mu.Lock()
	links := slices.Clone(g.links)
	g.mu.Unlock()
	for _, l := range links {
		l.conn.Net().Close()
	}
	g.readers.Wait()
	return nil
}

// fail ends the group for cause, unless it has ended before, and returns the first cause. It has told
// the neighbours when it returns.
func (g *group) fail(cause error) error {
	g.mu.Lock()
	explain := g.explain
	g.mu.Unlock()
	if explain != nil {
		cause = explain(cause)
	}
	f := failureOf(cause)
	g.shutdown(cause, wire.Frame{Type: wire.Fault, Payload: f.Append(nil)})
	<-g.life.Done()
	return context.Cause(g.life)
}

// shutdown ends the group once: it sends the last frame on every link and then ends life.
func (g *group) shutdown(cause error, last wire.Frame) {
	g.mu.Lock()
	if g.ending {
		g.mu.Unlock()
		return
	}
	g.ending = true
	links := slices.Clone(g.links)
	g.mu.Unlock()
	var telling sync.WaitGroup
	for _, l := range links {
		telling.Go(func() { l.sendLast(last) })
	}
	telling.Wait()
	g.end(cause)
}

// add makes l one of the group's links and starts to read it. If the group has ended, it tells the
// peer so and returns the cause.
func (g *group) add(l *link) error {
	g.mu.Lock()
	if g.ending {
		g.mu.Unlock()
		<-g.life.Done()
		cause := context.Cause(g.life)
		f := failureOf(cause)
		l.sendLast(wire.Frame{Type: wire.Fault, Payload: f.Append(nil)})
		l.conn.Net().Close()
		return cause
	}
	g.links = append(g.links, l)
	g.readers.Go(func() { g.read(l) })
	g.mu.Unlock()
	return nil
}

// read receives what a peer sends until the link ends.
func (g *group) read(l *link) {
	defer close(l.read)
	for {
		f, err := l.conn.Receive()
		switch {
		case err != nil && l.dropped.Load():
			return
		case err != nil:
			g.failInOrder(l.lost(g.rank, err))
			return
		case f.Type == wire.Fault:
			g.failInOrder(l.reported(g.rank, f))
			return
		case f.Type == wire.Bye && l.passing:
			g.drop(l)
			return
		case f.Type == wire.Bye:
			g.left <- l
			return
		}
		if f.Type == wire.Down {
			g.completing.Store(true)
		}
		select {
		case l.inbox <- f:
		default:
			g.fail(&RankError{Rank: l.peer, Err: fmt.Errorf("%w: unexpected %v frame", ErrMismatch, f.Type)})
			return
		}
	}
}

// failInOrder fails the group for something that came after all that a collective still needs. What
// that collective has yet to send on goes first, lest the failure overtake it and some ranks see
// the collective fail that succeeds on others: a rank may well exit once it has its last result.
func (g *group) failInOrder(cause error) {
	if g.completing.Load() {
		timer := time.NewTimer(orderly)
		defer timer.Stop()
		select {
		case g.turn <- struct{}{}:
			<-g.turn
		case <-g.life.Done():
		case <-timer.C:
		}
	}
	g.fail(cause)
}

// drop closes a link that is no longer needed.
func (g *group) drop(l *link) {
	g.mu.Lock()
	g.links = slices.DeleteFunc(g.links, func(x *link) bool { return x == l })
	g.mu.Unlock()
	l.dropped.Store(true)
	l.conn.Net().Close()
}

package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Local returns the n members of a group whose ranks are goroutines of this process. It panics if
// n < 1. The groups use neither sockets nor background goroutines nor timers.
func Local(n int) []Group {
	if n < 1 {
		panic(fmt.Sprintf("bootstrap: Local(%d): a group has at least one rank", n))
	}
	hub := newLocalHub(n)
	groups := make([]Group, n)
	for r := range groups {
		groups[r] = hub.group(r)
	}
	return groups
}

// localHub is what the members of a local group share. The mutex guards everything below it but the
// channel broken, which is closed once, after cause is set.
type localHub struct {
	size   int
	broken chan struct{}

	mu     sync.Mutex
	round  *localRound // the collective that some ranks have entered and not all; nil between two
	closed []bool
	cause  error

	parts  map[splitID]*localHub // groups that not all their ranks have joined yet
	joined int                   // of this group, while it is one of its parent's or a LocalNet's parts
	left   func()                // a member has closed; nil: nobody asks
}

// abandoned reports whether all who have joined have closed, and others are missing.
func (h *localHub) abandoned() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, c := range h.closed {
		if c {
			n++
		}
	}
	return h.joined < h.size && n == h.joined
}

func newLocalHub(size int) *localHub {
	return &localHub{size: size, broken: make(chan struct{}), closed: make([]bool, size)}
}

func (h *localHub) group(rank int) Group {
	return &localGroup{hub: h, rank: rank, done: make(chan struct{})}
}

// localRound is one collective. Its contents may be read without the lock once done is closed.
type localRound struct {
	op      string
	mine    [][]byte
	present []bool
	left    int
	done    chan struct{}
}

// localGroup is one rank's end of a localHub.
type localGroup struct {
	hub  *localHub
	rank int
	once sync.Once
	done chan struct{}

	splits int // how often this rank has split the group
}

func (g *localGroup) Rank() int { return g.rank }
func (g *localGroup) Size() int { return g.hub.size }

func (g *localGroup) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	all, err := g.meet(ctx, "allgather", mine)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, b := range all {
		total += len(b)
	}
	out, flat := make([][]byte, len(all)), make([]byte, 0, total) // one piece: groups may be large
	for r, b := range all {
		from := len(flat)
		flat = append(flat, b...)
		out[r] = flat[from:len(flat):len(flat)]
	}
	return out, nil
}

func (g *localGroup) Barrier(ctx context.Context) error {
	_, err := g.meet(ctx, "barrier", nil)
	return err
}

func (g *localGroup) Close() error {
	g.once.Do(func() {
		close(g.done)
		h := g.hub
		h.mu.Lock()
		h.closed[g.rank] = true
		if h.round != nil {
			h.fail(&RankError{Rank: g.rank, Err: fmt.Errorf("%w during %s", ErrPeerClosed, h.round.op)})
		}
		h.mu.Unlock()
		if h.left != nil {
			h.left()
		}
	})
	return nil
}

// meet enters a collective with mine and waits for the others. The result is shared by all ranks.
func (g *localGroup) meet(ctx context.Context, op string, mine []byte) ([][]byte, error) {
	round, err := g.enter(ctx, op, mine)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %s on rank %d: %w", op, g.rank, err)
	}
	select {
	case <-round.done:
		return round.mine, nil
	case <-ctx.Done():
	case <-g.done:
	case <-g.hub.broken:
	}
	if err := g.abandon(ctx, round); err != nil {
		return nil, fmt.Errorf("bootstrap: %s on rank %d: %w", op, g.rank, err)
	}
	return round.mine, nil
}

func (g *localGroup) enter(ctx context.Context, op string, mine []byte) (*localRound, error) {
	h := g.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed[g.rank]:
		return nil, ErrClosed
	case h.cause != nil:
		return nil, h.cause
	case len(mine) > MaxPayload/h.size:
		h.fail(&RankError{Rank: g.rank, Err: fmt.Errorf("%w: %d bytes, at most %d a rank", ErrTooLarge, len(mine), MaxPayload/h.size)})
		return nil, h.cause
	}
	if err := context.Cause(ctx); err != nil {
		h.fail(&RankError{Rank: g.rank, Err: fmt.Errorf("%w: %w", ErrTimeout, err)})
		return nil, h.cause
	}
	if gone := slices.Index(h.closed, true); gone >= 0 {
		h.fail(&RankError{Rank: gone, Err: ErrPeerClosed})
		return nil, h.cause
	}
	if h.round == nil {
		h.round = &localRound{
			op: op, mine: make([][]byte, h.size), present: make([]bool, h.size),
			left: h.size, done: make(chan struct{}),
		}
	}
	r := h.round
	if r.op != op {
		h.fail(&RankError{Rank: g.rank, Err: fmt.Errorf(
			"%w: it called %s while rank %d called %s", ErrMismatch, op, slices.Index(r.present, true), r.op)})
		return nil, h.cause
	}
	r.present[g.rank], r.mine[g.rank] = true, slices.Clone(mine)
	if r.left--; r.left == 0 {
		h.round = nil
		close(r.done)
	}
	return r, nil
}

// abandon says why a rank stops waiting for round. It returns nil if round was complete after all.
func (g *localGroup) abandon(ctx context.Context, round *localRound) error {
	h := g.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case round.left == 0:
		return nil
	case h.closed[g.rank]:
		return ErrClosed
	case h.cause == nil:
		var missing []int
		for r, there := range round.present {
			if !there {
				missing = append(missing, r)
			}
		}
		h.fail(fmt.Errorf("%w: rank %d gave up waiting for %s: %w",
			ErrTimeout, g.rank, rankList(missing), context.Cause(ctx)))
	}
	return h.cause
}

// fail breaks the group for good. The first cause stays. The caller holds the lock.
func (h *localHub) fail(cause error) {
	if h.cause == nil {
		h.cause = cause
		close(h.broken)
	}
}

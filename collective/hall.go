package collective

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap"
)

// hall is where newcomers wait, at rank 0. Its rooms are the contacts that they made.
type hall struct {
	entrance *bootstrap.Entrance
	withdraw func()
	life     context.Context
	end      context.CancelFunc
	workers  sync.WaitGroup

	mu      sync.Mutex
	guests  []*guest // in the order in which they came; without those that are invited
	changed chan struct{}
}

// sayTime bounds for how long a message to a newcomer, or of one, waits until the other takes it; the sockets nearly always do at once.
const sayTime = 2 * time.Second

// joinCircle is how newcomers reach rank 0.
func joinCircle(runID, secret string) bootstrap.Circle {
	return bootstrap.Circle{Secret: secret, RunID: runID + "/join", Rank: 0, Size: 1}
}

// openHall lets newcomers come.
func (c *Comm) openHall(ctx context.Context) error {
	if c.standby.hall != nil {
		return nil
	}
	if err := c.needPort(ctx); err != nil {
		return err
	}
	secret, withdraw, err := bootstrap.Publish(ctx, c.cfg.Bootstrap, c.standby.addrs())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	h := &hall{withdraw: withdraw, changed: make(chan struct{}),
		entrance: c.standby.port.Enter(joinCircle(c.cfg.Bootstrap.RunID, secret), bootstrap.ForJoining)}
	h.life, h.end = context.WithCancel(context.Background())
	h.workers.Go(h.accept)
	c.standby.hall = h
	return nil
}

func (h *hall) close() {
	h.entrance.Close()
	h.end()
	h.workers.Wait()
	h.withdraw()
}

func (h *hall) accept() {
	for {
		contact, err := h.entrance.Accept(h.life)
		if err != nil {
			return
		}
		g := newGuest(h, contact)
		h.mu.Lock()
		h.guests = append(h.guests, g)
		h.notify()
		h.mu.Unlock()
		h.workers.Go(g.listen) // which removes it again
	}
}

// notify wakes who waits for newcomers. The caller holds the lock.
func (h *hall) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *hall) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.guests)
}

// take waits for n newcomers and takes those that have waited longest.
func (h *hall) take(ctx context.Context, n int) ([]*guest, error) {
	for {
		h.mu.Lock()
		if len(h.guests) >= n {
			out := slices.Clone(h.guests[:n])
			h.guests = slices.Delete(h.guests, 0, n)
			h.mu.Unlock()
			return out, nil
		}
		there, changed := len(h.guests), h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d newcomers are there: %w", there, n, context.Cause(ctx))
		}
	}
}

package collective

import (
	"context"
	"encoding/json"
	"errors"
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

// guest is a newcomer.
type guest struct {
	hall    *hall
	contact *bootstrap.Contact
	life    context.Context // until the contact ends
	end     context.CancelFunc
	coming  chan struct{} // it has taken the invitation
}

// What rank 0 and a newcomer tell each other, in JSON.
type (
	// toGuest is one of: an invitation, its end for good (Welcome) or not (Again, and wait for another).
	toGuest struct {
		Invite  *invitation `json:"invite,omitempty"`
		Welcome bool        `json:"welcome,omitempty"`
		Again   bool        `json:"again,omitempty"`
	}
	// fromGuest answers an invitation.
	fromGuest struct {
		Coming bool `json:"coming"`
	}
	// invitation is a place in a communicator that is being made.
	invitation struct {
		Name       string   `json:"name"` // of its control plane
		Rank       int      `json:"rank"`
		Size       int      `json:"size"`
		Former     int      `json:"former"` // ranks of the communicator before; the others are new
		Generation uint64   `json:"generation"`
		Root       []string `json:"root"` // rank 0's addresses
	}
)

// sayTime bounds the sending of one message to a newcomer.
const sayTime = 10 * time.Second

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
		g := &guest{hall: h, contact: contact, coming: make(chan struct{}, 1)}
		g.life, g.end = context.WithCancel(h.life)
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

// listen hears a newcomer until its contact ends.
func (g *guest) listen() {
	defer g.contact.Close()
	defer g.end()
	stop := context.AfterFunc(g.hall.life, g.contact.Close)
	defer stop()
	for {
		b, err := g.contact.Receive()
		var said fromGuest
		if err == nil {
			err = json.Unmarshal(b, &said)
		}
		if err == nil && !said.Coming {
			err = errors.New("it declines") // and goes, as who is gone
		}
		if err != nil {
			g.hall.mu.Lock()
			g.hall.guests = slices.DeleteFunc(g.hall.guests, func(o *guest) bool { return o == g })
			g.hall.mu.Unlock()
			return
		}
		select {
		case g.coming <- struct{}{}:
		default:
		}
	}
}

func (g *guest) who() string { return fmt.Sprintf("pid %d on %s", g.contact.PID, g.contact.Host) }

func (g *guest) say(m toGuest) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return g.contact.Send(b, sayTime)
}

// tell lets an invited newcomer know how it ends: it is a rank now, or waits again.
func (g *guest) tell(welcome bool) {
	if err := g.say(toGuest{Welcome: welcome, Again: !welcome}); err != nil {
		g.contact.Close()
		return
	}
	if welcome {
		return // it hangs up
	}
	h := g.hall
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.life.Err() == nil {
		h.guests = append(h.guests, g)
		h.notify()
	}
}

// invite offers n newcomers places behind this communicator's ranks. All that are returned know of their
// invitation, and must hear how it ends.
func (c *Comm) invite(ctx context.Context, n int, name string) ([]*guest, error) {
	if c.cfg.Timeout > 0 { // the other ranks wait for this one
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout/2)
		defer cancel()
	}
	if err := c.openHall(ctx); err != nil {
		return nil, err
	}
	guests, err := c.standby.hall.take(ctx, n)
	if err != nil {
		return nil, err
	}
	if c.cfg.network == nil && c.cfg.Heartbeat > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Heartbeat)
		defer cancel()
	}
	for i, g := range guests {
		err := g.say(toGuest{Invite: &invitation{Name: c.planeName(name), Rank: c.size + i, Size: c.size + n,
			Former: c.size, Generation: c.standby.generation + 1, Root: c.standby.addrs()}})
		if err != nil {
			return guests, fmt.Errorf("newcomer %s: %w", g.who(), err)
		}
	}
	for _, g := range guests {
		select {
		case <-g.coming:
		case <-g.life.Done():
			return guests, fmt.Errorf("newcomer %s is gone", g.who())
		case <-ctx.Done():
			return guests, fmt.Errorf("newcomer %s does not answer: %w", g.who(), context.Cause(ctx))
		}
	}
	return guests, nil
}

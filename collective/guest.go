package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gccl/gccl/bootstrap"
)

// guest is a newcomer, at rank 0.
type guest struct {
	hall *hall
	speaker
	life context.Context // until the contact ends
	end  context.CancelCauseFunc

	// Of its latest invitation; the hall's lock guards them.
	name   string        // of the control plane
	coming chan struct{} // holds something: it has taken the invitation
	part   context.Context
	fail   context.CancelCauseFunc // ends part, which ends with life, too
}

// speaker is the side of a contact that sends, one message at a time.
type speaker struct {
	contact *bootstrap.Contact
	saying  sync.Mutex
}

func (s *speaker) say(m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	s.saying.Lock()
	defer s.saying.Unlock()
	return s.contact.Send(b, sayTime)
}

// What rank 0 and a newcomer tell each other, in JSON.
type (
	// toGuest is one of: an invitation, its end for good (Welcome), for now (Again: wait for another) or for
	// ever (Refused), or none, which is a sign of life.
	toGuest struct {
		Invite  *invitation `json:"invite,omitempty"`
		Welcome bool        `json:"welcome,omitempty"`
		Again   bool        `json:"again,omitempty"`
		Refused *fault      `json:"refused,omitempty"`
	}
	// fromGuest is one of: yes to an invitation, why the newcomer's making has failed, which rank 0 cannot know
	// otherwise, or a question for a sign of life (Ask). Else it declines, and is let go.
	fromGuest struct {
		Name   string `json:"name,omitempty"` // of the invitation
		Coming bool   `json:"coming,omitempty"`
		Failed string `json:"failed,omitempty"`
		Ask    bool   `json:"ask,omitempty"`
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

func newGuest(h *hall, contact *bootstrap.Contact) *guest {
	g := &guest{hall: h, speaker: speaker{contact: contact}}
	g.life, g.end = context.WithCancelCause(h.life)
	return g
}

// listen hears a newcomer until its contact ends.
func (g *guest) listen() {
	defer g.contact.Close()
	stop := context.AfterFunc(g.hall.life, g.contact.Close)
	defer stop()
	for {
		b, err := g.contact.Receive()
		var said fromGuest
		if err == nil {
			err = json.Unmarshal(b, &said)
		}
		if err == nil {
			err = g.hear(said)
		}
		if err != nil {
			h := g.hall
			h.mu.Lock()
			g.end(fmt.Errorf("newcomer %s is gone", g.who())) // in one step: nobody puts it back
			h.guests = slices.DeleteFunc(h.guests, func(o *guest) bool { return o == g })
			h.mu.Unlock()
			return
		}
	}
}

func (g *guest) hear(m fromGuest) error {
	if m.Ask {
		return g.say(toGuest{})
	}
	g.hall.mu.Lock()
	defer g.hall.mu.Unlock()
	switch latest := g.part != nil && m.Name == g.name; {
	case m.Failed != "":
		if latest {
			g.fail(fmt.Errorf("newcomer %s: %s", g.who(), told(m.Failed)))
		}
	case !m.Coming:
		return errors.New("it declines")
	case latest:
		select {
		case g.coming <- struct{}{}:
		default:
		}
	}
	return nil
}

func (g *guest) who() string { return fmt.Sprintf("pid %d on %s", g.contact.PID, g.contact.Host) }

// invite offers the newcomer a place. One that has not taken the offer when ctx ends is sent away; it comes again when it can.
func (g *guest) invite(ctx context.Context, in *invitation) error {
	g.hall.mu.Lock()
	g.name, g.coming = in.Name, make(chan struct{}, 1)
	g.part, g.fail = context.WithCancelCause(g.life)
	g.hall.mu.Unlock()
	defer context.AfterFunc(ctx, g.contact.Close)()
	if err := g.say(toGuest{Invite: in}); err != nil {
		return because(ctx, fmt.Errorf("newcomer %s: %w", g.who(), err))
	}
	return nil
}

// tellAll lets invited newcomers know how it ends, all at once, as some may take nothing. Those who are to wait for another invitation
// are in the hall again, in their order.
func tellAll(guests []*guest, verdicts []toGuest) {
	var telling sync.WaitGroup
	heard := make([]bool, len(guests))
	for i, g := range guests {
		telling.Go(func() { heard[i] = g.tell(verdicts[i]) })
	}
	telling.Wait()
	for i, g := range guests {
		if heard[i] && verdicts[i].Again {
			g.sendBack()
		}
	}
}

// tell lets an invited newcomer know how it ends: it hangs up, or waits for another invitation (sendBack). One that does not take it
// is sent away.
func (g *guest) tell(verdict toGuest) bool {
	if g.fail != nil {
		g.fail(nil)
	}
	if err := g.say(verdict); err != nil {
		g.contact.Close() // which ends life, later
		return false
	}
	return true
}

// sendBack puts a newcomer into the hall again, if it is still there.
func (g *guest) sendBack() {
	h := g.hall
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.life.Err() == nil {
		h.guests = append(h.guests, g)
		h.notify()
	}
}

// invite offers n newcomers places behind this communicator's ranks. All that are returned must hear how it
// ends, whether or not they know of an invitation.
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
	if silence := c.silence(); silence > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, silence)
		defer cancel()
	}
	for i, g := range guests {
		err := g.invite(ctx, &invitation{Name: c.planeName(name), Rank: c.size + i, Size: c.size + n,
			Former: c.size, Generation: c.standby.generation + 1, Root: c.standby.addrs()})
		if err != nil {
			return guests, err
		}
	}
	for _, g := range guests {
		select {
		case <-g.coming:
		case <-g.life.Done():
			return guests, context.Cause(g.life)
		case <-ctx.Done():
			g.contact.Close() // it comes again when it can
			return guests, fmt.Errorf("newcomer %s does not answer: %w", g.who(), context.Cause(ctx))
		}
	}
	return guests, nil
}

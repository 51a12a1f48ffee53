package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Pairs lets two ranks of a circle meet at any time, without the others: what a communicator of very
// many ranks needs, of which each talks to few. The higher rank of two calls the lower one's port. Its
// methods may be called from any goroutine.
type Pairs struct {
	port     *Port
	circle   Circle
	addrs    [][]string // by rank
	entrance *Entrance
	life     context.Context
	end      context.CancelCauseFunc
	workers  sync.WaitGroup

	mu      sync.Mutex
	arrived map[int]*Contact // ranks that have come and that this one has yet to meet
	came    chan struct{}    // closed, and made anew, when one comes
}

// OpenPairs lets the ranks of a circle, which are reached at addrs by rank, meet this one, whose port
// stays the caller's. All ports must be open before any rank meets another.
func OpenPairs(port *Port, c Circle, addrs [][]string) *Pairs {
	p := &Pairs{port: port, circle: c, addrs: addrs, arrived: map[int]*Contact{}, came: make(chan struct{})}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.entrance = port.Enter(c, ForMeeting)
	p.workers.Go(p.receive)
	return p
}

// receive takes in who comes. A rank that comes again has given up its earlier attempt.
func (p *Pairs) receive() {
	for {
		c, err := p.entrance.Accept(p.life)
		if err != nil {
			return
		}
		if c.Rank <= p.circle.Rank || c.Rank >= p.circle.Size {
			c.Close()
			continue
		}
		p.mu.Lock()
		if old := p.arrived[c.Rank]; old != nil {
			old.Close()
		}
		p.arrived[c.Rank] = c
		close(p.came)
		p.came = make(chan struct{})
		p.mu.Unlock()
	}
}

// Close ends meetings in progress. It is local and bounded, and may be called more than once.
func (p *Pairs) Close() {
	p.end(ErrClosed)
	p.entrance.Close()
	p.workers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.arrived {
		c.Close()
	}
	clear(p.arrived)
}

// Meet exchanges bytes with a peer, which must call Meet for this rank; the first that comes waits.
// Each is given what the other has brought, less than 64 KiB, and Meet returns when both ranks' use
// has returned nil. If one's fails, the other's Meet fails, too. Two ranks have one meeting at a time.
//
// Meet returns when ctx is done, and soon after the peer's port has closed.
func (p *Pairs) Meet(ctx context.Context, peer int, mine []byte, use func(theirs []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.life, func() { cancel(context.Cause(p.life)) })()
	if err := p.meet(ctx, peer, mine, use); err != nil {
		return fmt.Errorf("bootstrap: rank %d meets rank %d: %w", p.circle.Rank, peer, err)
	}
	return nil
}

func (p *Pairs) meet(ctx context.Context, peer int, mine []byte, use func([]byte) error) error {
	for {
		calls := peer < p.circle.Rank
		var c *Contact
		var err error
		if calls {
			c, err = p.port.Call(ctx, p.circle, ForMeeting, peer, p.addrs[peer])
		} else {
			c, err = p.await(ctx, peer)
		}
		if err == nil {
			stop := context.AfterFunc(ctx, c.Close)
			var begun bool
			begun, err = exchange(c, calls, mine, use)
			stop()
			c.Close()
			if err != nil && !calls && !begun && ctx.Err() == nil {
				// Who called had given up; it may come again, and if it has ended, its port is closed.
				continue
			}
		}
		var verdict *verdict
		switch {
		case err == nil:
			return nil
		case errors.As(err, &verdict):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w: it has not come: %w", ErrTimeout, context.Cause(ctx))
		case errors.Is(err, ErrConfig), errors.Is(err, ErrMismatch):
			return err
		case errors.Is(err, io.EOF):
			err = errors.New("it ended")
		}
		return &RankError{Rank: peer, Err: fmt.Errorf("%w: %w", ErrPeerLost, err)}
	}
}

// verdict is the failure of one side to use what it was given.
type verdict struct{ err error }

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// What begins a message of a meeting.
const (
	saysOffer = 'o'
	saysDone  = 'd'
	saysFault = 'f' // and why
)

// exchange is what both sides do once they are in contact. The side that was called speaks first, so
// that an offer comes from a rank that is there. begun says that an offer has come.
func exchange(c *Contact, calls bool, mine []byte, use func([]byte) error) (begun bool, err error) {
	offer := append([]byte{saysOffer}, mine...)
	if !calls {
		if err := c.Send(offer, patience); err != nil {
			return false, err
		}
	}
	theirs, err := hear(c, saysOffer)
	if err != nil {
		return false, err
	}
	if calls {
		if err := c.Send(offer, patience); err != nil {
			return true, err
		}
	}
	// Each in turn says whether it can use that: a network of this process holds no message for later.
	mineFailed := use(theirs)
	word := []byte{saysDone}
	if mineFailed != nil {
		word = append([]byte{saysFault}, mineFailed.Error()...)
		word, mineFailed = word[:min(len(word), MaxMessage)], &verdict{mineFailed}
	}
	if calls {
		if err = c.Send(word, patience); err == nil && mineFailed == nil {
			_, err = hear(c, saysDone)
		}
	} else if _, err = hear(c, saysDone); err == nil {
		err = c.Send(word, patience)
	}
	return true, cmp.Or(mineFailed, err)
}

// patience bounds the sending of a message, beside the context: who it is for does little else.
const patience = time.Minute

// hear waits for a word of the other side's.
func hear(c *Contact, word byte) ([]byte, error) {
	b, err := c.Receive()
	switch {
	case err != nil:
		return nil, err
	case len(b) > 0 && b[0] == word:
		return b[1:], nil
	case len(b) > 0 && b[0] == saysFault:
		return nil, &verdict{&RankError{Rank: c.Rank, Err: fmt.Errorf("it cannot use what it was told: %s", b[1:])}}
	}
	return nil, fmt.Errorf("%w: a message out of turn", ErrMismatch)
}

// Bounds of the pause after which a rank that waits looks whether the other can still be reached.
const (
	firstLook = time.Second
	lastLook  = 30 * time.Second
)

// await waits until a peer has come.
func (p *Pairs) await(ctx context.Context, peer int) (*Contact, error) {
	look := firstLook
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		p.mu.Lock()
		c, came := p.arrived[peer], p.came
		delete(p.arrived, peer)
		p.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-came:
		case <-timer.C:
			if err := p.look(ctx, peer); errors.Is(err, ErrRefused) {
				return nil, err
			}
			look = min(2*look, lastLook)
			timer.Reset(look)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look calls a peer for nothing.
func (p *Pairs) look(ctx context.Context, peer int) error {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	c, err := p.port.Call(ctx, p.circle, ForMeeting, peer, p.addrs[peer])
	if err == nil {
		c.Close() // who comes to a higher rank is not listened to
	}
	return err
}

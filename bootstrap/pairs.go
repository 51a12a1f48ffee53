package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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
	life     context.Context // until Close
	end      context.CancelCauseFunc
	meeting  context.Context // until Fail or Close
	stop     context.CancelCauseFunc
	workers  sync.WaitGroup
	meetings sync.WaitGroup

	mu      sync.Mutex
	arrived map[int]*Contact // ranks that have come and that this one has yet to meet
	came    chan struct{}    // closed, and made anew, when one comes
	word    []byte           // the message that tells why this rank failed; nil: it has not
}

// OpenPairs lets the ranks of a circle, which are reached at addrs by rank, meet this one, whose port
// stays the caller's. All ports must be open before any rank meets another.
func OpenPairs(port *Port, c Circle, addrs [][]string) *Pairs {
	p := &Pairs{port: port, circle: c, addrs: addrs, arrived: map[int]*Contact{}, came: make(chan struct{})}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.meeting, p.stop = context.WithCancelCause(p.life)
	p.entrance = port.Enter(c, ForMeeting)
	p.workers.Go(p.receive)
	return p
}

// receive takes in who comes. A rank that comes again has given up its earlier attempt. A lower rank comes
// to look whether this one is there, and whether it has failed.
func (p *Pairs) receive() {
	for {
		c, err := p.entrance.Accept(p.life)
		if err != nil {
			return
		}
		p.mu.Lock()
		switch {
		case p.word != nil:
			p.workers.Go(func() { c.part(p.word) })
		case c.Rank <= p.circle.Rank || c.Rank >= p.circle.Size:
			c.Close()
		default:
			if old := p.arrived[c.Rank]; old != nil {
				old.Close()
			}
			p.arrived[c.Rank] = c
			close(p.came)
			p.came = make(chan struct{})
		}
		p.mu.Unlock()
	}
}

// Fail ends this rank's meetings, those to come included, and tells the ranks that it is meeting, and all
// that want to meet it until Close, why: their Meet returns word, of less than 64 KiB, in a Told. The
// first word stays. Fail returns when no meeting is in progress, and waits for about a second at most
// for ranks that do not listen.
func (p *Pairs) Fail(word []byte) {
	p.mu.Lock()
	var arrived []*Contact
	if p.word == nil {
		p.word = append([]byte{saysFailed}, word...)
		arrived = slices.Collect(maps.Values(p.arrived))
		clear(p.arrived)
	}
	p.mu.Unlock()
	p.stop(errFailed)
	var told sync.WaitGroup
	for _, c := range arrived {
		told.Go(func() { c.part(p.word) })
	}
	told.Wait()
	p.meetings.Wait()
}

// errFailed ends the meetings of a rank that failed.
var errFailed = errors.New("this rank has failed")

// Told is the error of a meeting with a rank that has failed.
type Told struct {
	Rank int
	Word []byte // what it said
}

// Error names the rank.
func (t *Told) Error() string { return fmt.Sprintf("rank %d has failed", t.Rank) }

// Close ends meetings in progress. It is local and bounded, and may be called more than once.
func (p *Pairs) Close() {
	p.end(ErrClosed)
	p.entrance.Leave()
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
// Meet returns when ctx is done, which use is given, and soon after the peer has failed or its port has
// closed.
func (p *Pairs) Meet(ctx context.Context, peer int, mine []byte, use func(ctx context.Context, theirs []byte) error) error {
	p.mu.Lock()
	failed := p.word != nil
	if !failed {
		p.meetings.Add(1)
		defer p.meetings.Done()
	}
	p.mu.Unlock()
	err := errFailed
	if !failed {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(p.meeting, func() { cancel(context.Cause(p.meeting)) })()
		err = p.meet(ctx, peer, mine, func(theirs []byte) error { return use(ctx, theirs) })
	}
	if err != nil {
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
			var begun bool
			begun, err = p.talk(ctx, c, calls, mine, use)
			if err != nil && ctx.Err() == nil && !isTold(err) {
				// If the other has failed, that is why; if it stands and the contact broke, it had given up.
				seen := p.look(ctx, peer)
				if seen == nil && !calls && !begun {
					continue // it may come again
				}
				if isTold(seen) {
					err = seen
				}
			}
		}
		switch {
		case err == nil, isTold(err), errors.As(err, new(*verdict)):
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

// talk is what two ranks in contact do. If it is interrupted, the other is told why.
func (p *Pairs) talk(ctx context.Context, c *Contact, calls bool, mine []byte, use func([]byte) error) (begun bool, err error) {
	defer c.Close()
	stop := context.AfterFunc(ctx, c.interrupt)
	begun, err = exchange(ctx, c, calls, mine, use)
	if !stop() && err != nil {
		p.mu.Lock()
		word := p.word
		p.mu.Unlock()
		if word != nil {
			c.part(word)
		}
	}
	return begun, err
}

// verdict is the failure of one side to use what it was given.
type verdict struct{ err error }

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// isTold reports whether an error is what a rank said that has failed.
func isTold(err error) bool { return errors.As(err, new(*Told)) }

// What begins a message of a meeting.
const (
	saysOffer  = 'o'
	saysDone   = 'd'
	saysFault  = 'f' // and why
	saysFailed = 'x' // and the word of Fail
)

// exchange is what both sides do once they are in contact. The side that was called speaks first, so
// that an offer comes from a rank that is there. begun says that an offer has come. That the other has
// failed counts more than what follows from it.
func exchange(ctx context.Context, c *Contact, calls bool, mine []byte, use func([]byte) error) (begun bool, err error) {
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
	var mineFailed error
	word := []byte{saysDone}
	if err := use(theirs); err != nil {
		word = append([]byte{saysFault}, err.Error()...)
		word, mineFailed = word[:min(len(word), MaxMessage)], &verdict{err}
		if ctx.Err() != nil {
			return true, mineFailed
		}
		defer time.AfterFunc(farewell, c.interrupt).Stop() // it may say nothing more
	}
	if calls {
		err = c.Send(word, patience)
		if _, heard := hear(c, saysDone); err == nil || isTold(heard) {
			err = heard
		}
	} else if _, err = hear(c, saysDone); err == nil {
		err = c.Send(word, patience)
	}
	if mineFailed != nil && !isTold(err) {
		err = mineFailed
	}
	return true, err
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
	case len(b) > 0 && b[0] == saysFailed:
		return nil, &Told{Rank: c.Rank, Word: b[1:]}
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
			if err := p.look(ctx, peer); errors.Is(err, ErrRefused) || isTold(err) {
				return nil, err
			}
			look = min(2*look, lastLook)
			timer.Reset(look)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look calls a peer to see whether it is there, and hears what it says if it has failed.
func (p *Pairs) look(ctx context.Context, peer int) error {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	c, err := p.port.Call(ctx, p.circle, ForMeeting, peer, p.addrs[peer])
	if err != nil {
		return err
	}
	defer c.Close() // a rank that lives does not listen to lower ranks, and finds this contact ended
	defer context.AfterFunc(ctx, c.interrupt)()
	if _, err := hear(c, saysDone); isTold(err) {
		return err
	}
	return nil
}

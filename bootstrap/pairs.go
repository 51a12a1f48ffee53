package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pairs lets two ranks of a circle meet at any time, without the others: what a communicator of very
// many ranks needs, of which each talks to few. The higher rank of two calls the lower one's port. Its
// methods may be called from any goroutine.
type Pairs struct {
	port     *Port
	circle   Circle
	addrs    [][]string // by rank
	silence  time.Duration
	entrance *Entrance
	lookers  *Entrance
	life     context.Context // until Close
	end      context.CancelCauseFunc
	going    context.Context // until Fail or Close
	stop     context.CancelCauseFunc
	workers  sync.WaitGroup
	meetings sync.WaitGroup
	running  atomic.Int32 // meetings in progress

	mu      sync.Mutex
	arrived map[int]*Contact // ranks that have come and that this one has yet to meet
	came    chan struct{}    // closed, and made anew, when one comes
	word    []byte           // the message that tells why this rank failed; nil: it has not
}

// OpenPairs lets the ranks of a circle, which are reached at addrs by rank, meet this one, whose port
// stays the caller's. All ports must be open before any rank meets another. A rank whose port does not
// answer for silence, if that is positive, is taken for lost: its process is stopped, or cut off.
func OpenPairs(port *Port, c Circle, addrs [][]string, silence time.Duration) *Pairs {
	p := &Pairs{port: port, circle: c, addrs: addrs, silence: silence, arrived: map[int]*Contact{}, came: make(chan struct{})}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.going, p.stop = context.WithCancelCause(p.life)
	p.entrance, p.lookers = port.Enter(c, ForMeeting), port.Enter(c, forLooking)
	p.workers.Go(func() { p.receive(p.entrance, p.arrive) })
	p.workers.Go(func() { p.receive(p.lookers, (*Contact).Close) }) // that it was let in is the answer
	return p
}

// receive has take deal with who comes by an entrance, with mu held. Once this rank has failed they are told so.
func (p *Pairs) receive(e *Entrance, take func(c *Contact)) {
	for {
		c, err := e.Accept(p.life)
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.word != nil {
			p.workers.Go(func() { c.part(p.word) })
		} else {
			take(c)
		}
		p.mu.Unlock()
	}
}

// arrive takes in who comes to meet this rank. A rank that comes again has given up its earlier attempt.
func (p *Pairs) arrive(c *Contact) {
	if c.Rank <= p.circle.Rank || c.Rank >= p.circle.Size {
		c.Close()
		return
	}
	if old := p.arrived[c.Rank]; old != nil {
		old.Close()
	}
	p.arrived[c.Rank] = c
	close(p.came)
	p.came = make(chan struct{})
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
	p.lookers.Leave()
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
		p.running.Add(1)
		defer p.running.Add(-1)
	}
	p.mu.Unlock()
	err := errFailed
	if !failed {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(p.going, func() { cancel(context.Cause(p.going)) })()
		m := &meeting{Pairs: p, peer: peer, mine: mine, use: func(theirs []byte) error { return use(ctx, theirs) }}
		var watch sync.WaitGroup
		watch.Go(func() {
			if err := m.watch(ctx); err != nil {
				cancel(err)
			}
		})
		err = m.run(ctx)
		cancel(nil)
		watch.Wait()
	}
	if err != nil {
		return fmt.Errorf("bootstrap: rank %d meets rank %d: %w", p.circle.Rank, peer, err)
	}
	return nil
}

// Watch looks at a peer from time to time, after a meeting with it, until ctx is done. It returns before that,
// with the error that a Meet would return, if the peer has failed or is silent; that its port has closed is no
// error, as it may need this rank no more.
func (p *Pairs) Watch(ctx context.Context, peer int) error {
	m := &meeting{Pairs: p, peer: peer}
	m.talking.Store(true)
	return m.watch(ctx)
}

// await waits until a peer has come.
func (p *Pairs) await(ctx context.Context, peer int) (*Contact, error) {
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
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look calls a peer to see whether its process is there, and hears what it says if it has failed.
func (p *Pairs) look(ctx context.Context, peer int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := p.port.Call(ctx, p.circle, forLooking, peer, p.addrs[peer])
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, c.interrupt)()
	_, err = hear(c, saysDone)
	switch {
	case isTold(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: rank %d let this one in and says nothing", ErrTimeout, peer)
	}
	return nil
}

package collective

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/internal/cpu"
)

// queue gives calls their turn, in the order issued. A blocking call that finds nobody before it
// runs on its caller's goroutine, for one compare-and-swap to enter and one to leave, or less (bias); everything
// else runs on a worker that lives while there is work.
type queue struct {
	turn   atomic.Uint32
	bias   atomic.Pointer[bias] // changes under mu
	op     atomic.Uintptr       // goroutine that runs a custom operation (cpu.Goroutine), 0: none does
	mu     sync.Mutex
	closed bool
	waits  []*Handle
	server bool    // serve has the turn, or is about to begin
	served *Handle // what it is at

	// What follows belongs to whoever has the turn.
	latest uintptr // goroutine whose blocking call came last
	row    int     // its calls in a row
	biases int     // given so far
}

// Who has the turn.
const (
	turnFree   = iota
	turnTaken  // a blocking call, and nobody waits
	turnServed // there is or was work in waits: whoever ends its call goes on with that. Set under mu.
)

// Handle is a call in flight.
type Handle struct {
	done  chan struct{}
	err   error
	work  func() error
	begun atomic.Bool // by whoever serves the queue, or given up before
	aside bool        // it is no call, and short
}

// await waits for the call, or, as long as it has not begun, for ctx.
func (h *Handle) await(ctx context.Context, what fmt.Stringer) error {
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
	}
	select {
	case <-h.done: // as of a communicator that is closed
		return h.err
	default:
	}
	if h.begun.CompareAndSwap(false, true) {
		return notBegun(what, ctx.Err())
	}
	<-h.done // it has begun, and ctx ends it
	return h.err
}

func notBegun(call fmt.Stringer, err error) error {
	return fmt.Errorf("%w: %v: %w", ErrNotBegun, call, err)
}

// Done is closed when the call has finished.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Wait waits for the call and returns its error. If ctx ends first, Wait returns ctx's error and
// the call goes on; the context that it was started with is what ends it.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Err returns the call's error once Done is closed, and nil before.
func (h *Handle) Err() error {
	select {
	case <-h.done:
		return h.err
	default:
		return nil
	}
}

// enter takes the turn at once if nobody has it.
func (q *queue) enter() bool {
	if q.turn.CompareAndSwap(turnFree, turnTaken) {
		return true
	}
	if q.bias.Load() == nil {
		return false
	}
	q.mu.Lock()
	q.unbiasLocked()
	q.mu.Unlock()
	return q.turn.CompareAndSwap(turnFree, turnTaken)
}

// leave gives the turn to who waits for it.
func (q *queue) leave() {
	if !q.turn.CompareAndSwap(turnTaken, turnFree) {
		q.mu.Lock()
		q.server = true
		q.mu.Unlock()
		go q.serve()
	}
}

// serve works off the queue; it has the turn.
func (q *queue) serve() {
	for {
		q.mu.Lock()
		if len(q.waits) == 0 {
			q.freeLocked()
			q.mu.Unlock()
			return
		}
		h := q.waits[0]
		q.served = h
		q.waits[0] = nil // a handle keeps its call's tensors alive
		if q.waits = q.waits[1:]; len(q.waits) == 0 {
			q.waits = nil
		}
		q.mu.Unlock()
		if h.begun.CompareAndSwap(false, true) {
			h.err = h.work()
		}
		h.work = nil
		q.mu.Lock()
		q.served = nil
		last := len(q.waits) == 0
		if last { // first, so that who has waited for the call finds the turn free
			q.freeLocked()
		}
		q.mu.Unlock()
		close(h.done)
		if last {
			return
		}
	}
}

// freeLocked ends what serve does. It holds mu.
func (q *queue) freeLocked() {
	q.server = false
	q.turn.Store(turnFree)
}

// idle reports whether nobody has the turn, or only what is no call has it or waits for it.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turn.Load() == turnFree || q.server && (q.served == nil || q.served.aside) && !slices.ContainsFunc(q.waits, func(h *Handle) bool { return !h.aside })
}

// enterOp and leaveOp say that the caller's goroutine, which has the turn, runs a custom operation of a call.
func (q *queue) enterOp() { q.op.Store(cpu.Goroutine()) }
func (q *queue) leaveOp() { q.op.Store(0) }

// inOp reports whether that is the caller's goroutine: what it waits for would wait for it.
func (q *queue) inOp() bool {
	g := q.op.Load()
	return g != 0 && g == cpu.Goroutine()
}

// errInOp is the error of a custom operation's call of the communicator that runs it.
var errInOp = invalid("a reduce operation called its own communicator")

// put queues work, and aside what is no call.
func (q *queue) put(work func() error) *Handle {
	return q.add(&Handle{done: make(chan struct{}), work: work})
}

func (q *queue) aside(work func() error) *Handle {
	return q.add(&Handle{done: make(chan struct{}), work: work, aside: true})
}

func (q *queue) add(h *Handle) *Handle {
	if q.inOp() {
		h.err = errInOp
		close(h.done)
		return h
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		h.err = ErrClosed
		close(h.done)
		return h
	}
	q.waits = append(q.waits, h)
	q.unbiasLocked()
	if q.turn.Swap(turnServed) == turnFree {
		q.server = true
		go q.serve()
	}
	return h
}

// close refuses further work.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// operation is the name of what is not one call.
type operation string

func (o operation) String() string { return string(o) }

// operate does what is not one call when its turn has come, for which it waits until ctx ends, and waits until it is done.
func (c *Comm) operate(ctx context.Context, what operation, work func() error) error {
	return c.queue.put(func() error {
		switch err := ctx.Err(); {
		case c.closed.Load():
			return ErrClosed
		case err != nil:
			return notBegun(what, err)
		}
		return work()
	}).await(ctx, what)
}

// do makes a call and waits for it.
func (c *Comm) do(ctx context.Context, call *Call) error {
	if b, ok := c.queue.begin(); ok {
		if call.Op.Custom() {
			return c.custom(b, func() error { return c.run(ctx, call) })
		}
		err := c.run(ctx, call)
		c.queue.end(b)
		return err
	}
	copied := *call
	h := c.queue.put(func() error { return c.run(ctx, &copied) })
	return h.await(ctx, copied)
}

// custom makes a call with a custom operation in the turn that b says. Should the operation panic, and the caller
// recover, peers wait no more for this rank, and Close not for the call.
func (c *Comm) custom(b *bias, run func() error) error {
	returned := false
	defer func() {
		if !returned {
			c.Abort("a reduce operation panicked")
		}
		c.queue.end(b)
	}()
	err := run()
	returned = true
	return err
}

// Start issues a call and returns at once. Its tensors belong to the call until it is done. Calls
// keep the order in which they were issued, whether started or blocking: they overlap the caller's work, not
// each other. For that use [Comm.Group] or a [Comm.Dup]. ctx ends the call itself.
func (c *Comm) Start(ctx context.Context, call Call) *Handle {
	return c.queue.put(func() error { return c.run(ctx, &call) })
}

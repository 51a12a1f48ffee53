package faulty

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/rdma"
)

// slot remembers a write from Post to its completion.
type slot struct {
	id       uint64
	signaled bool
	scratch  rdma.Region // the changed bytes of a corrupted write
}

// endpoint numbers its writes from 1; the inner endpoint sees the number as the write's ID.
//
// Number n is in slots[n%len(slots)] while retired < n ≤ posted. Writes up to handed are with the
// inner endpoint or done, the rest is in held.
type endpoint struct {
	dev    *device
	cq     *queue
	inner  rdma.Endpoint
	number int
	onLost func(error)

	lost   atomic.Pointer[error] // why the peer is lost; set once
	closed atomic.Bool

	// Guarded by cq.mu.
	k       uint64 // posts that the plan has decided on
	refused bool   // write k was refused once by ShortPosts
	slots   []slot
	posted  uint64 // the last write taken
	retired uint64 // the last write that is complete
	handed  uint64 // the last signaled write that the inner endpoint has to complete
	held    []rdma.Write
	until   time.Time // held writes wait for it
	stalled bool
	failed  error // held writes will not be posted any more, for this reason
	timer   *time.Timer

	waiting atomic.Bool // held is not empty
}

func (e *endpoint) ID() uint32      { return e.inner.ID() }
func (e *endpoint) Address() []byte { return e.inner.Address() }

func (e *endpoint) Connect(ctx context.Context, remote []byte) error {
	if err := e.failure(); err != nil {
		return err
	}
	return e.inner.Connect(ctx, remote)
}

// failure says why nothing can be posted, nil if it can.
func (e *endpoint) failure() error {
	if err := e.dev.failure(); err != nil {
		return err
	}
	if e.closed.Load() {
		return fmt.Errorf("%w: faulty endpoint %d", rdma.ErrClosed, e.number)
	}
	if p := e.lost.Load(); p != nil {
		return *p
	}
	return nil
}

// innerLost is the inner endpoint's OnLost. It may run inside any call to the inner endpoint, with
// the queue locked: what is held back is dealt with at the next poll.
func (e *endpoint) innerLost(err error) {
	if e.closed.Load() || e.dev.failure() != nil || !e.lost.CompareAndSwap(nil, &err) {
		return
	}
	if e.onLost != nil {
		e.cq.call(func() {
			if !e.closed.Load() {
				e.onLost(err)
			}
		})
	}
	if e.waiting.Load() {
		e.cq.fire() // a poll will find the failed completions of what is held
	}
}

// Post takes writes in order; see Plan for what becomes of them.
func (e *endpoint) Post(ws []rdma.Write) (int, error) {
	for i := range ws {
		e.cq.lock()
		taken, act, err := e.postLocked(ws[i])
		e.cq.unlock()
		switch act {
		case Break:
			e.breakNow("by plan")
			return i + 1, nil
		case Die:
			e.dev.die("by plan")
			return i, e.dev.failure()
		}
		if !taken || err != nil {
			return i, err
		}
	}
	return len(ws), nil
}

// Keep implements rdma.Keeper where the inner endpoint does; else it does nothing.
func (e *endpoint) Keep() {
	inner, ok := e.inner.(rdma.Keeper)
	if !ok {
		return
	}
	e.cq.lock()
	defer e.cq.unlock()
	for i := range e.held {
		e.held[i].Local, e.held[i].Region = slices.Clone(e.held[i].Local), nil
	}
	inner.Keep()
}

// postLocked takes one write. A Break or Die is for the caller to carry out, without the lock.
func (e *endpoint) postLocked(w rdma.Write) (taken bool, act Fault, err error) {
	if err := e.failure(); err != nil {
		return false, None, err
	}
	if e.failed != nil {
		return false, None, e.failed
	}
	now := time.Now()
	e.pumpLocked(now)
	p := &e.dev.plan
	if e.posted-e.retired >= uint64(len(e.slots)) {
		return false, None, nil
	}
	if p.ShortPosts > 0 && !e.refused && e.signaledLocked() && p.chance(streamShort, e.number, e.k) < p.ShortPosts {
		e.refused = true
		return false, None, nil
	}
	fault := p.FaultAt(e.number, e.k)
	s := slot{id: w.ID, signaled: w.Signaled}
	switch fault {
	case Delay:
		e.until = now.Add(p.delay())
	case Stall:
		e.stalled = true
	case Drop:
		w = rdma.Write{Signaled: w.Signaled}
	case Truncate:
		w.Local = w.Local[:len(w.Local)/2]
	case Corrupt:
		if s.scratch, err = e.corrupt(&w); err != nil {
			return false, None, err
		}
	case Break:
		s.signaled = true // a write that fails has a completion
	}
	w.ID = e.posted + 1
	*e.slot(w.ID) = s
	if fault != Break && fault != Die {
		if err := e.sendLocked(w, now); err != nil {
			e.slot(w.ID).free()
			return false, None, err
		}
	}
	e.posted++
	e.k++
	e.refused = false
	if fault != None {
		e.dev.record(Event{Endpoint: e.number, Post: e.k - 1, Fault: fault})
	}
	return true, fault, nil
}

// sendLocked posts w now or holds it back. An error is about w alone.
func (e *endpoint) sendLocked(w rdma.Write, now time.Time) error {
	if len(e.held) == 0 && !e.stalled && !now.Before(e.until) {
		n, err := e.inner.Post([]rdma.Write{w})
		if err != nil {
			return err
		}
		if n == 1 {
			e.handedLocked(w)
			return nil
		}
	}
	if w.Inline {
		w.Local = slices.Clone(w.Local)
	}
	e.held = append(e.held, w)
	e.waiting.Store(true)
	e.scheduleLocked(now)
	return nil
}

func (e *endpoint) handedLocked(w rdma.Write) {
	if w.Signaled {
		e.handed = w.ID
	}
}

// scheduleLocked has the held writes posted when their time has come, polled or not.
func (e *endpoint) scheduleLocked(now time.Time) {
	wait := e.until.Sub(now)
	if e.stalled || wait <= 0 || e.closed.Load() {
		return
	}
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, e.tick)
		return
	}
	e.timer.Reset(wait)
}

func (e *endpoint) tick() {
	e.cq.lock()
	now := time.Now()
	e.pumpLocked(now)
	e.scheduleLocked(now)
	failed := e.failedLocked()
	e.cq.unlock()
	if failed {
		e.cq.fire()
	}
}

// pumpLocked posts held writes that are due.
func (e *endpoint) pumpLocked(now time.Time) {
	if e.failed == nil {
		e.failed = e.failure()
	}
	if e.failed != nil || e.stalled || now.Before(e.until) {
		return
	}
	for len(e.held) > 0 {
		n, err := e.inner.Post(e.held[:1])
		if err != nil {
			e.failed = err
			return
		}
		if n == 0 {
			return // its completions make room, and polling them comes here
		}
		e.handedLocked(e.held[0])
		e.held = slices.Delete(e.held, 0, 1)
	}
	e.waiting.Store(false)
}

// slot returns where write n is remembered.
func (e *endpoint) slot(n uint64) *slot { return &e.slots[n%uint64(len(e.slots))] }

// completeLocked translates an inner completion. A write that was settled already is not known.
func (e *endpoint) completeLocked(c rdma.Completion) (id uint64, known bool) {
	if c.ID <= e.retired || c.ID > e.posted {
		return 0, false
	}
	id = e.slot(c.ID).id
	e.retireLocked(c.ID)
	return id, true
}

// retireLocked makes room of the writes up to n.
func (e *endpoint) retireLocked(n uint64) {
	for ; e.retired < n; e.retired++ {
		e.slot(e.retired + 1).free()
	}
}

// free gives back what the write used.
func (s *slot) free() {
	if s.scratch != nil {
		_ = s.scratch.Close()
		s.scratch = nil
	}
}

// failedLocked tells whether there are writes that settleLocked will complete now.
func (e *endpoint) failedLocked() bool {
	err := e.failed
	if err == nil {
		err = e.failure()
	}
	return err != nil && !e.closed.Load() && e.retired < e.posted && e.retired >= e.handed && e.signaledLocked()
}

func (e *endpoint) signaledLocked() bool {
	for n := e.retired + 1; n <= e.posted; n++ {
		if e.slot(n).signaled {
			return true
		}
	}
	return false
}

// settleLocked completes, with errors, the writes that the inner endpoint never saw, as soon as
// those that it saw are complete.
func (e *endpoint) settleLocked() {
	if !e.failedLocked() {
		return
	}
	err := e.failed
	if err == nil {
		err = e.failure()
		e.failed = err
	}
	for n := e.retired + 1; n <= e.posted; n++ {
		if s := e.slot(n); s.signaled {
			e.cq.ready = append(e.cq.ready, rdma.Completion{Kind: rdma.Wrote, Endpoint: e.ID(), ID: s.id, Err: err})
		}
	}
	e.held = nil
	e.retireLocked(e.posted)
}

// corrupt replaces the bytes of w by a copy with one bit flipped.
func (e *endpoint) corrupt(w *rdma.Write) (rdma.Region, error) {
	n := len(w.Local)
	if n == 0 {
		return nil, nil
	}
	bit := e.dev.plan.hash(streamBit, e.number, e.k) % uint64(8*n)
	var scratch rdma.Region
	var changed []byte
	if w.Inline {
		changed = make([]byte, n)
	} else {
		var err error
		if scratch, err = e.dev.Device.Alloc(n, "faulty: corrupted bytes"); err != nil {
			return nil, err
		}
		changed = scratch.Bytes()
		w.Region = scratch
	}
	copy(changed, w.Local)
	changed[bit/8] ^= 1 << (bit % 8)
	w.Local = changed
	return scratch, nil
}

// breakNow ends the connection for both ends.
func (e *endpoint) breakNow(why string) {
	err := fmt.Errorf("%w: faulty: connection broken %s", rdma.ErrPeerLost, why)
	if e.closed.Load() || e.dev.failure() != nil || !e.lost.CompareAndSwap(nil, &err) {
		return
	}
	_ = e.inner.Close() // without the lock: the peer's OnLost may run in it
	q := e.cq
	q.lock()
	// What the inner queue has of this endpoint is all that it will ever have.
	_ = q.collectLocked(1 << 30)
	e.handed = 0
	e.settleLocked()
	some := len(q.ready) > 0
	q.unlock()
	if e.onLost != nil {
		e.onLost(err)
	}
	if some {
		q.fire()
	}
}

// retire stops the endpoint's timer and drops what is held.
func (e *endpoint) retire() {
	e.closed.Store(true)
	e.cq.lock()
	defer e.cq.unlock()
	if e.timer != nil {
		e.timer.Stop()
	}
	e.held = nil
}

func (e *endpoint) Close() error {
	e.retire()
	err := e.inner.Close()
	e.cq.lock()
	defer e.cq.unlock()
	for i := range e.slots { // the inner endpoint uses them no more
		e.slots[i].free()
	}
	if e.retired >= e.handed {
		delete(e.cq.endpoints, e.ID()) // else completions are to be translated yet
	}
	return err
}

// mapped is an endpoint that also shows its peer's memory.
type mapped struct {
	*endpoint
	ls rdma.LoadStore
}

func (m mapped) Map(ctx context.Context, r rdma.RemoteRegion) ([]byte, error) {
	if err := m.failure(); err != nil {
		return nil, err
	}
	return m.ls.Map(ctx, r)
}

// Signal rings the peer unless the connection is gone.
func (m mapped) Signal() {
	if m.failure() == nil {
		m.ls.Signal()
	}
}

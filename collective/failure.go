package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/internal/recorder"
	"go.uber.org/zap"
)

// fail breaks the communicator because the call with that number failed, tells the peers, and returns the error
// that this and every later call gives.
func (c *Comm) fail(call *Call, seq uint64, err error) error {
	return c.failIn(call.String(), seq, err)
}

// failIn is fail of a call of that description.
func (c *Comm) failIn(call string, seq uint64, err error) error {
	e := &StepError{Kind: ErrInternal, Call: call, Seq: seq, Rank: c.rank, Peer: -1, Step: -1, Err: err}
	if at, ok := c.engine.Position(); ok {
		e.Lane, e.Step, e.Steps, e.Doing = at.Lane, at.Step, at.Steps, at.Doing
	}
	n := c.blame(e, err)
	broke := c.mesh.Fail(n)
	c.withdraw()
	if broke != n && !errors.As(err, new(*executor.Gone)) {
		e.Kind, e.Peer, e.Err = kindOf(broke.Cause), broke.Culprit, broke
	}
	c.retreat(broke)
	first := c.breaks(e)
	if c.cfg.DumpDir != "" {
		c.writeDump(c.snapshot("failure"))
	}
	if !first {
		return c.broken.Load()
	}
	c.log.Warn("communicator broken", errorFields(e)...)
	return e
}

// blame finds out what the error of a call means: it completes e, and returns what the peers are told.
func (c *Comm) blame(e *StepError, err error) *link.Notice {
	n := &link.Notice{From: c.rank, Culprit: c.rank}
	var (
		gone     *executor.Gone
		mismatch *link.Mismatch
		length   *executor.Length
		corrupt  *link.Corrupt
		device   *deviceError
	)
	switch {
	case errors.As(err, &gone):
		n = gone.Notice
		e.Kind, e.Peer = kindOf(n.Cause), n.Culprit
		if n.Cause == link.CauseClosed {
			n = &link.Notice{Cause: link.CauseLost, From: c.rank, Culprit: n.Culprit, Text: n.Text}
		}
	case errors.As(err, &mismatch):
		n.Cause, n.Culprit = link.CauseMismatch, mismatch.Peer
		mine := explain(c.counterpart(mismatch), c.algorithmName)
		if Kind(mismatch.Mine.A>>56) == Send { // which came, or did not, for a Recv of this rank
			mine = received(mine)
		}
		n.Text = fmt.Sprintf("%s calls %s, %s calls %s", c.describe(c.rank), mine,
			c.describe(mismatch.Peer), explain(mismatch.Theirs, c.algorithmName))
		e.Kind, e.Peer, e.Err = ErrMismatch, mismatch.Peer, errors.New(n.Text)
	case errors.As(err, &length):
		n.Cause, n.Culprit = link.CauseMismatch, length.Peer
		n.Text = fmt.Sprintf("%s in %s: %v", c.describe(c.rank), e.Call, length)
		e.Kind, e.Peer = ErrMismatch, length.Peer
	case errors.As(err, &corrupt):
		n.Cause, n.Culprit = link.CauseCorrupt, corrupt.Peer
		n.Text = fmt.Sprintf("from %s to %s: %v", c.describe(corrupt.Peer), c.describe(c.rank), err)
		e.Kind, e.Peer, e.Err = ErrCorrupt, corrupt.Peer, errors.New(n.Text)
	case errors.As(err, &device):
		n.Cause, e.Kind, e.Err = link.CauseGaveUp, ErrDevice, device.err
		n.Text = fmt.Sprintf("%s gave up %s #%d: %v", c.describe(c.rank), e.Call, e.Seq, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		n.Cause = link.CauseGaveUp
		e.Kind = context.Canceled
		if errors.Is(err, context.DeadlineExceeded) {
			e.Kind = context.DeadlineExceeded
		}
		if e.Err = errors.New(c.waitsFor()); errors.As(err, new(*unmet)) {
			e.Err = err
		}
		n.Text = fmt.Sprintf("%s gave up %s #%d: %v: %v", c.describe(c.rank), e.Call, e.Seq, e.Kind, e.Err)
	default:
		n.Cause, n.Text = link.CauseInternal, fmt.Sprintf("%s: %v", c.describe(c.rank), err)
	}
	return n
}

// breaks marks the communicator as broken, and ends what waits outside the engine (attended). It reports whether e is the first reason.
func (c *Comm) breaks(e *StepError) bool {
	first := c.broken.CompareAndSwap(nil, e)
	c.breakOff(c.broken.Load())
	return first
}

// withdrawMost is how long a failed call waits for the peers' cards to acknowledge what it has posted, of which the latest is why
// it failed.
const withdrawMost = 200 * time.Millisecond

// withdraw makes sure that no peer's write lands in the tensors of the failed call any more, and that they are not
// read, before their owner has them back.
func (c *Comm) withdraw() {
	if !c.mesh.Exposed() {
		return
	}
	c.flush(withdrawMost)
	if err := c.mesh.Withdraw(); err != nil {
		c.log.Warn("connections of a failed call", zap.Error(err))
	}
}

// counterpart is this rank's call that the peer's contradicts: that of the same number, if the record
// still has it, else the one in progress.
func (c *Comm) counterpart(m *link.Mismatch) link.Call {
	mine := m.Mine
	if Kind(m.Theirs.A>>56) >= Send || uint32(m.Theirs.A) == uint32(mine.A) {
		return mine
	}
	c.flight.ring.Each(func(_ uint64, e *recorder.Entry, _ recorder.State) {
		if Kind(e.Kind) < Send && e.Seq == uint32(m.Theirs.A) {
			mine = described(e)
		}
	})
	return mine
}

func kindOf(c link.Cause) error {
	switch c {
	case link.CauseLost, link.CauseClosed:
		return ErrPeerLost
	case link.CauseMismatch:
		return ErrMismatch
	case link.CauseGaveUp:
		return ErrGaveUp
	case link.CauseRevoked:
		return ErrRevoked
	case link.CauseCorrupt:
		return ErrCorrupt
	}
	return ErrInternal
}

// waitsFor says which ranks the call waited for.
func (c *Comm) waitsFor() string {
	ranks := c.engine.WaitsFor(nil)
	switch {
	case len(ranks) > 0:
	case c.engine.Held():
		return "waited for a copy from the device: does the tensor's stream get on?"
	default:
		return "nothing was awaited"
	}
	return "waited for " + c.describeAll(ranks, len(ranks))
}

func (c *Comm) algorithmName(i uint8) string {
	if int(i) < len(c.catalog) {
		return c.catalog[i].Name
	}
	return "transfer"
}

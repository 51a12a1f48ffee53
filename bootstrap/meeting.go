package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/meet"
)

// meeting is a Meet in progress.
type meeting struct {
	*Pairs
	peer    int
	mine    []byte
	use     func([]byte) error
	talking atomic.Bool // there is a contact, whose end tells that the other has ended
}

func (m *meeting) run(ctx context.Context) error {
	calls := m.peer < m.circle.Rank
	pause := meet.FirstPause
	for {
		var c *Contact
		var err error
		if calls {
			c, err = m.port.Call(ctx, m.circle, ForMeeting, m.peer, m.addrs[m.peer])
		} else {
			c, err = m.await(ctx, m.peer)
		}
		if err == nil {
			var begun bool
			m.talking.Store(true)
			begun, err = m.talk(ctx, c, calls)
			m.talking.Store(false)
			if err != nil && ctx.Err() == nil && !isTold(err) {
				// If the other has failed, that is why. If it stands and the contact broke early, it had given up,
				// or its process stood still; it may come again.
				seen := m.look(ctx, m.peer, firstLook)
				if !begun && !isTold(seen) && !errors.Is(seen, ErrRefused) && meet.Rest(ctx, &pause, meet.LongestPause) {
					continue
				}
				if isTold(seen) {
					err = seen
				}
			}
		}
		switch cause := context.Cause(ctx); {
		case err == nil, isTold(err):
			return err
		case isTold(cause), errors.As(cause, new(*RankError)): // watch saw it, and ended use
			return cause
		case errors.As(err, new(*verdict)):
			return err
		case cause != nil:
			return fmt.Errorf("%w: it has not come: %w", ErrTimeout, cause)
		case errors.Is(err, ErrConfig), errors.Is(err, ErrMismatch):
			return err
		case errors.Is(err, io.EOF):
			err = errors.New("it ended")
		}
		return m.lost(err)
	}
}

func (m *meeting) lost(why error) error {
	return &RankError{Rank: m.peer, Err: fmt.Errorf("%w: %w", ErrPeerLost, why)}
}

// talk is what two ranks in contact do. If it is interrupted, the other is told why.
func (m *meeting) talk(ctx context.Context, c *Contact, calls bool) (begun bool, err error) {
	defer c.Close()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { c.interrupt(); close(interrupted) })
	begun, err = exchange(ctx, c, calls, m.mine, m.use)
	if !stop() && err != nil {
		<-interrupted // part sets deadlines of its own
		m.mu.Lock()
		word := m.word
		m.mu.Unlock()
		if word != nil {
			c.part(word)
		}
	}
	return begun, err
}

// Bounds of the pause between two looks at the other; the latter if its silence is not bounded.
const (
	firstLook = time.Second
	lastLook  = 30 * time.Second
)

// looksPerSilence is how often, at least, a rank is looked at within the time for which it may be silent, and
// lookCost what a look may take of a rank's time: with many meetings at once they are rarer.
const (
	looksPerSilence = 3
	lookCost        = 20 * time.Millisecond
)

// mostSilent is how many looks in a row, each of a part of that time, a silent rank does not answer. One says
// nothing: it may have been this process that was stopped meanwhile.
const mostSilent = 2

// watch looks at the other until ctx is done. It returns an error when the other has failed, is silent, or has
// ended while it was awaited.
func (m *meeting) watch(ctx context.Context) error {
	pause, limit, longest := firstLook, firstLook, lastLook
	if m.silence > 0 {
		pause, limit, longest = min(firstLook, m.silence/looksPerSilence), m.silence/mostSilent, m.silence/looksPerSilence
	}
	for silent, wait := 0, pause; ; {
		t := time.NewTimer(max(wait, time.Duration(m.running.Load())*lookCost))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		err := m.look(ctx, m.peer, limit)
		switch {
		case ctx.Err() != nil:
			return nil
		case isTold(err):
			return err
		case errors.Is(err, ErrRefused) && !m.talking.Load():
			return m.lost(err)
		case errors.Is(err, ErrTimeout) && m.silence > 0:
			if silent++; silent == mostSilent {
				return m.lost(fmt.Errorf("its process has not answered for %v: it is stopped, or cut off: %w", m.silence, err))
			}
			wait = 0 // again at once
			continue
		}
		silent, pause = 0, min(2*pause, longest)
		wait = pause
	}
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
		word, mineFailed = append([]byte{saysFault}, err.Error()...), &verdict{err}
		word = bytes.ToValidUTF8(word[:min(len(word), MaxMessage)], nil) // which ends with a character
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

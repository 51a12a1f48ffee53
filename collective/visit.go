package collective

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/bootstrap"
)

// visit is a newcomer's stay at rank 0.
type visit struct {
	speaker
	life    context.Context // until the contact ends, or rank 0 is silent for too long
	end     context.CancelCauseFunc
	workers sync.WaitGroup
	heard   chan toGuest // what rank 0 says, but for signs of life
	sign    atomic.Int64 // when rank 0 last gave a sign of life, since the visit began
}

// newVisit begins to listen; silence is how long rank 0 may give no sign of life, 0: for ever.
func newVisit(ctx context.Context, contact *bootstrap.Contact, silence time.Duration) *visit {
	v := &visit{speaker: speaker{contact: contact}, heard: make(chan toGuest, 1)}
	v.life, v.end = context.WithCancelCause(ctx)
	began := time.Now()
	v.workers.Go(func() { v.listen(began) })
	if silence > 0 {
		v.workers.Go(func() { v.watch(began, silence) })
	}
	return v
}

// leave ends the visit.
func (v *visit) leave() {
	v.end(nil)
	v.contact.Close()
	v.workers.Wait()
}

// listen hears rank 0 until the contact ends. Whatever rank 0 has said comes before that end.
func (v *visit) listen(began time.Time) {
	for {
		b, err := v.contact.Receive()
		var m toGuest
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			v.end(fmt.Errorf("rank 0 is gone: %w", err))
			return
		}
		v.sign.Store(int64(time.Since(began)))
		if m == (toGuest{}) {
			continue
		}
		select {
		case v.heard <- m:
		case <-v.life.Done():
			return
		}
	}
}

// asks is how often in the time of a silence that is too long a newcomer asks for a sign of life.
const asks = 4

// watch asks rank 0 for signs of life. A stopped process keeps its contacts, while the job may go on
// with another rank 0.
func (v *visit) watch(began time.Time, silence time.Duration) {
	every := max(silence/asks, time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	for looked := time.Duration(0); ; {
		select {
		case <-t.C:
		case <-v.life.Done():
			return
		}
		now := time.Since(began)
		if now-looked > silence { // this process has been stopped itself
			v.sign.Store(int64(now))
		}
		looked = now
		if quiet := now - time.Duration(v.sign.Load()); quiet > silence {
			v.end(fmt.Errorf("rank 0 gave no sign of life for %v", quiet))
			v.contact.Close()
			return
		}
		if v.say(fromGuest{Ask: true}) != nil {
			return // listen learns why
		}
	}
}

package loopback

import (
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/rdma"
)

// The states of a bell.
const (
	awake uint32 = iota
	armed        // by Arm; the next Ring wakes
	rung         // since Arm; a token is in the channel or about to be
)

// bell is an rdma.Bell made of a word and a channel.
//
// No ring after Arm is lost: the waiter stores armed and then looks for work, the ringer stores work
// and then looks for armed. Both are sequentially consistent, so one of them sees the other. A
// token that comes too late for its Sleep stays in the channel and ends a later one for no reason.
type bell struct {
	state  atomic.Uint32
	tokens chan struct{}
	timer  *time.Timer // the waiter's; made by its first Sleep
}

var _ rdma.Bell = (*bell)(nil)

func newBell() *bell { return &bell{tokens: make(chan struct{}, 1)} }

func (b *bell) Arm() {
	b.drain()
	b.state.Store(armed)
}

func (b *bell) Disarm() {
	b.state.Store(awake)
	b.drain()
}

func (b *bell) Ring() {
	if b.state.Load() != armed || !b.state.CompareAndSwap(armed, rung) {
		return
	}
	select {
	case b.tokens <- struct{}{}:
	default: // an older token does as well
	}
}

func (b *bell) Sleep(d time.Duration) {
	defer b.state.Store(awake)
	if b.state.Load() == awake || d <= 0 {
		return
	}
	if b.timer == nil {
		b.timer = time.NewTimer(d)
	} else {
		b.timer.Reset(d)
	}
	select {
	case <-b.tokens:
	case <-b.timer.C:
	}
	b.timer.Stop()
}

func (b *bell) drain() {
	select {
	case <-b.tokens:
	default:
	}
}

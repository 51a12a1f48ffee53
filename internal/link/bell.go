package link

import (
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/rdma"
)

// bell is a rank's bell where no device brings one: a channel with room for one ring.
type bell struct {
	armed atomic.Bool
	rung  chan struct{}
}

// NewBell returns a bell for a rank whose devices have none.
func NewBell() rdma.Bell { return &bell{rung: make(chan struct{}, 1)} }

// Arm announces that the waiter will sleep.
func (b *bell) Arm() {
	select {
	case <-b.rung: // of an earlier time
	default:
	}
	b.armed.Store(true)
}

// Sleep waits for a ring since Arm, or for d.
func (b *bell) Sleep(d time.Duration) {
	t := time.NewTimer(d)
	select {
	case <-b.rung:
	case <-t.C:
	}
	t.Stop()
	b.armed.Store(false)
}

// Disarm undoes Arm.
func (b *bell) Disarm() { b.armed.Store(false) }

// Ring wakes the waiter if it is armed.
func (b *bell) Ring() {
	if !b.armed.Load() {
		return
	}
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

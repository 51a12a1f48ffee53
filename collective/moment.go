package collective

import (
	"runtime"
	"sync/atomic"
)

// moments counts those who have the turn, or are about to try, for something short that is no call.
type moments struct {
	begun atomic.Uint32
	now   atomic.Int32
}

// briefly does something short with the turn, if nobody has it, and reports whether.
func (c *Comm) briefly(f func()) bool {
	c.moments.now.Add(1)
	defer c.moments.now.Add(-1)
	c.moments.begun.Add(1)
	if !c.queue.enter() {
		return false
	}
	defer c.queue.leave()
	f()
	return true
}

// settle takes the turn, or reports that a call has it or waits for it: it waits for who has it for a moment only.
func (c *Comm) settle() bool {
	for {
		begun, now := c.moments.begun.Load(), c.moments.now.Load()
		if c.queue.enter() {
			return true
		}
		if !c.queue.idle() && now == 0 && c.moments.now.Load() == 0 && c.moments.begun.Load() == begun {
			return false
		}
		runtime.Gosched()
	}
}

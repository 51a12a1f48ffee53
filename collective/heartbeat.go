package collective

import (
	"context"
	"time"

	"github.com/gccl/gccl/internal/link"
)

// beat shows the peers that this rank lives, until ctx ends.
func (c *Comm) beat(ctx context.Context) {
	t := time.NewTicker(link.BeatEvery)
	defer t.Stop()
	for {
		c.selfCheck()
		c.mesh.Beat()
		c.tend()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// tendMost bounds the polls of one visit.
const tendMost = 16

// tend polls the links of a rank that is in no call, so that its connections do not fill with what the
// peers show it, and its own signs of life leave.
func (c *Comm) tend() {
	if !c.mesh.NeedsProgress() {
		return
	}
	c.briefly(func() { // else who has the turn polls
		for range tendMost {
			switch moved, err := c.mesh.Progress(); {
			case err != nil:
				c.mesh.Fail(&link.Notice{Cause: link.CauseInternal, From: c.rank, Culprit: c.rank, Text: c.describe(c.rank) + ": " + err.Error()})
				return
			case !moved:
				return
			}
		}
	})
}

// selfCheck finds out, by the gap since its last call, whether this rank has been stopped itself for so long
// that others may have gone on without it.
func (c *Comm) selfCheck() {
	now := time.Now()
	last := c.standby.lastBeat.Swap(&now)
	if last != nil && c.heartbeat() > 0 && now.Sub(*last) > c.heartbeat()/2 {
		c.standby.stopped.Store(true)
	}
}

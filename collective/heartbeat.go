package collective

import (
	"context"
	"time"
)

// beatEvery is how often a rank shows its peers that it lives.
const beatEvery = 100 * time.Millisecond

// beat counts up this rank's pulse until ctx ends.
func (c *Comm) beat(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		c.mesh.Beat()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

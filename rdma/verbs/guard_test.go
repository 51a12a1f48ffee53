package verbs

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The object is destroyed once, and never while somebody is inside.
func TestGuard(t *testing.T) {
	for range 200 {
		var inside, destroyed atomic.Int32
		g := newGuard(func() {
			destroyed.Add(1)
			assert.Zero(t, inside.Load(), "destroyed while in use")
		})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					inside.Add(1)
					assert.Zero(t, destroyed.Load())
					inside.Add(-1)
					g.leave()
				}
			})
		}
		for range 2 {
			wg.Go(g.close)
		}
		wg.Wait()
		<-g.gone
		assert.Equal(t, int32(1), destroyed.Load())
		assert.False(t, g.enter())
	}
}

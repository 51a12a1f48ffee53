package meet

import (
	"sync"
	"time"
)

// Remind calls say after a while, and again after pauses that double, until stop is called. say does not
// run any more when stop has returned.
func Remind(first time.Duration, say func()) (stop func()) {
	var mu sync.Mutex
	stopped := false
	pause := first
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(first, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		say()
		timer.Reset(pause)
		pause *= 2
	})
	return func() {
		timer.Stop()
		mu.Lock()
		stopped = true
		mu.Unlock()
	}
}

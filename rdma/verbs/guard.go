package verbs

import (
	"sync"
	"sync/atomic"
)

// guard lets any number of calls use a C object, until close; the object is then destroyed by the
// last that leaves. It costs two atomic additions a call.
type guard struct {
	n       atomic.Int64 // users, plus shut once closed
	once    sync.Once
	destroy func()
	gone    chan struct{} // closed when destroyed
}

const shut = 1 << 40

func newGuard(destroy func()) *guard {
	return &guard{destroy: destroy, gone: make(chan struct{})}
}

// enter tells whether the object may be used, until leave.
func (g *guard) enter() bool { return g.n.Add(1) < shut || g.refuse() }

//go:noinline
func (g *guard) refuse() bool {
	g.leave()
	return false
}

func (g *guard) leave() {
	if g.n.Add(-1) == shut {
		g.finish()
	}
}

// close stops new users. It does not wait; see gone.
func (g *guard) close() {
	for {
		n := g.n.Load()
		if n >= shut {
			return
		}
		if g.n.CompareAndSwap(n, n+shut) {
			if n == 0 {
				g.finish()
			}
			return
		}
	}
}

func (g *guard) finish() {
	g.once.Do(func() {
		g.destroy()
		close(g.gone)
	})
}

package collective

import (
	"sync/atomic"

	"github.com/gccl/gccl/internal/cpu"
)

// A goroutine that makes one blocking call after the other is given the queue's turn for longer, so that its
// calls enter and leave by plain stores: a locked instruction waits until what was stored before has
// reached the cache, and what a call stores last is a line that the peer has (measured between far cores: 35 ns of
// the 130 that a Broadcast of 8 bytes took; and 14 ns on any).
//
// While a bias stands, turn is turnTaken. Its owner says by inside that it makes a call, then looks whether the
// bias still stands. Whoever else wants the turn takes the bias away, puts a fence into all threads, and then looks at
// inside: so at least one of the two sees the other (as in package shm's bells).
//
//	bias  inside seen   who has the turn
//	ends  0             nobody: turn is free, and the owner, should it be about to enter, queues like others
//	ends  1             the owner still (kept): it leaves, or goes on, as if it had entered the common way
type bias struct {
	owner  uintptr // cpu.Goroutine
	inside atomic.Uint64
	kept   bool // the owner has the turn beyond the bias; guarded by queue.mu
}

// biasAfter is how many calls a goroutine must make in a row for its first bias. Taking one away costs a fence,
// 2 µs, so that every further one needs twice as many, up to biasDoubled times.
const (
	biasAfter   = 16
	biasDoubled = 12
)

// begin takes the turn at once if nobody has it, for a call of the caller's goroutine. What it returns is
// for end.
func (q *queue) begin() (*bias, bool) {
	if b := q.bias.Load(); b != nil && b.owner == cpu.Goroutine() {
		if b.inside.Load() != 0 && q.inOp() {
			return nil, false
		}
		cpu.StoreRelease(&b.inside, 1)
		if q.bias.Load() == b || q.keeps(b) {
			return b, true
		}
	}
	return nil, q.enter()
}

// end leaves what begin entered. Entered the common way often enough in a row, it gives the caller a bias.
func (q *queue) end(b *bias) {
	if b == nil {
		if !q.prefer() {
			q.leave()
		}
		return
	}
	cpu.StoreRelease(&b.inside, 0)
	if q.bias.Load() != b && q.keeps(b) {
		q.leave()
	}
}

// keeps reports whether the owner of a bias that was taken away has the turn.
func (q *queue) keeps(b *bias) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return b.kept
}

// prefer gives the caller, who has the turn, a bias instead, or reports false.
func (q *queue) prefer() bool {
	me := cpu.Goroutine()
	if q.latest != me {
		q.latest, q.row = me, 0
	}
	if q.row++; me == 0 || q.row < biasAfter<<min(q.biases, biasDoubled) || !cpu.ReceiveFences() {
		return false
	}
	q.row = 0
	q.biases++
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn.Load() != turnTaken {
		return false // somebody waits
	}
	q.bias.Store(&bias{owner: me})
	return true
}

// unbiasLocked takes the bias away, if there is one. The caller holds mu.
func (q *queue) unbiasLocked() {
	b := q.bias.Load()
	if b == nil {
		return
	}
	q.bias.Store(nil)
	cpu.FenceOthers()
	if b.inside.Load() != 0 {
		b.kept = true
		return
	}
	q.turn.Store(turnFree)
}

//go:build linux

package shm

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/internal/futex"
	"github.com/gccl/gccl/internal/hostmem"
)

// The memory of a bell: the futex word at 0, the count of sleepers at 64. The owner writes the
// count, ringers write the word. The package comment has the argument why no ring is lost.
const (
	bellWord    = 0
	bellArmed   = 64
	bellBytes   = 128
	bellPurpose = "shm bells"
)

// ringer is any process's view of a bell.
type ringer struct {
	mem   *hostmem.Block
	word  *atomic.Uint32
	armed *atomic.Uint32
}

func newRinger(mem *hostmem.Block) *ringer {
	mem.CloseWhenUnreachable()
	b := mem.Bytes()
	return &ringer{mem: mem, word: hostmem.Word32(b, bellWord), armed: hostmem.Word32(b, bellArmed)}
}

// ring wakes all sleepers; without any it costs one load.
func (r *ringer) ring() {
	if r.armed.Load() != 0 {
		r.word.Add(1)
		futex.Wake(r.word, math.MaxInt32)
	}
	runtime.KeepAlive(r)
}

// bell is the owner's view: the bell of one waiter. Several share one ringer.
type bell struct {
	*ringer
	isArmed bool
	seen    uint32
}

// Arm implements rdma.Bell.
func (b *bell) Arm() {
	if !b.isArmed {
		b.isArmed = true
		b.armed.Add(1)
	}
	b.seen = b.word.Load()
	runtime.KeepAlive(b)
}

// Disarm implements rdma.Bell.
func (b *bell) Disarm() {
	if b.isArmed {
		b.isArmed = false
		b.armed.Add(^uint32(0))
	}
	runtime.KeepAlive(b)
}

// Sleep implements rdma.Bell. The thread sleeps in the kernel, not the goroutine alone, so that the
// wake-up comes straight from the peer's system call.
func (b *bell) Sleep(d time.Duration) {
	if b.isArmed {
		futex.Wait(b.word, b.seen, d)
	}
	b.Disarm()
}

// Ring implements rdma.Bell.
func (b *bell) Ring() { b.ring() }

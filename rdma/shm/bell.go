//go:build linux

package shm

import (
	"math"
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
	b := mem.Bytes()
	return &ringer{mem: mem, word: hostmem.Word32(b, bellWord), armed: hostmem.Word32(b, bellArmed)}
}

// ring wakes all sleepers; without any it costs one load. The caller holds a lease of the memory.
func (r *ringer) ring() {
	if r.armed.Load() != 0 {
		r.word.Add(1)
		futex.Wake(r.word, math.MaxInt32)
	}
}

// bell is one waiter's view of its own device's bell; several waiters share the memory. After the
// device is closed it does nothing.
type bell struct {
	dev     *Device
	isArmed bool
	seen    uint32
}

// Arm implements rdma.Bell.
func (b *bell) Arm() {
	if !b.dev.bellUse.acquire() {
		return
	}
	defer b.dev.bellUse.release()
	if !b.isArmed {
		b.isArmed = true
		b.dev.ringer.armed.Add(1)
	}
	b.seen = b.dev.ringer.word.Load()
}

// Disarm implements rdma.Bell.
func (b *bell) Disarm() {
	if b.dev.bellUse.acquire() {
		b.disarm()
		b.dev.bellUse.release()
	}
}

func (b *bell) disarm() {
	if b.isArmed {
		b.isArmed = false
		b.dev.ringer.armed.Add(^uint32(0))
	}
}

// Sleep implements rdma.Bell. The thread sleeps in the kernel, not the goroutine alone, so that the
// wake-up comes straight from the peer's system call. Closing the device ends it.
func (b *bell) Sleep(d time.Duration) {
	if !b.dev.bellUse.acquire() {
		return
	}
	defer b.dev.bellUse.release()
	if b.isArmed {
		futex.Wait(b.dev.ringer.word, b.seen, d)
	}
	b.disarm()
}

// Ring implements rdma.Bell.
func (b *bell) Ring() { b.dev.ring() }

// ring wakes whoever sleeps on this device's own bell.
func (d *Device) ring() {
	if d.bellUse.acquire() {
		d.ringer.ring()
		d.bellUse.release()
	}
}

//go:build linux

package shm

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/internal/cpu"
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
	word  *atomic.Uint32
	armed *atomic.Uint32
}

func newRinger(b []byte) ringer {
	return ringer{word: hostmem.Word32(b, bellWord), armed: hostmem.Word32(b, bellArmed)}
}

// peerBell is a peer's bell, seen through a window, so that a Signal needs no protection from the
// end of its endpoint: at worst it rings another peer's bell, which wakes that peer for no reason.
type peerBell struct {
	ringer
	window *hostmem.Window
}

// blankBells are the windows of this process that show no bell at present.
var blankBells struct {
	sync.Mutex
	list []*peerBell
}

// showBell returns the bell behind a descriptor, which stays the caller's.
func showBell(fd int) (*peerBell, error) {
	p, err := blankBell()
	if err != nil {
		return nil, err
	}
	if err := p.window.Show(fd); err != nil {
		p.hide()
		return nil, err
	}
	return p, nil
}

func blankBell() (*peerBell, error) {
	blankBells.Lock()
	defer blankBells.Unlock()
	if n := len(blankBells.list); n > 0 {
		p := blankBells.list[n-1]
		blankBells.list = blankBells.list[:n-1]
		return p, nil
	}
	w, err := hostmem.NewWindow()
	if err != nil {
		return nil, err
	}
	return &peerBell{newRinger(w.Bytes()), w}, nil
}

// hide ends the view. If the kernel has no memory for a blank page, the window stays out of use.
func (p *peerBell) hide() {
	if p.window.Blank() != nil {
		return
	}
	blankBells.Lock()
	defer blankBells.Unlock()
	blankBells.list = append(blankBells.list, p)
}

// ring wakes all sleepers; without any it costs one load.
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
	cpu.FenceOthers()
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

//go:build linux

package shm

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/gccl/gccl/internal/hostmem"
)

// A completion ring carries the immediates of one peer's writes, from one writer (the peer) to one
// reader (the owner), in the owner's shared memory:
//
//	 0   8  head: entries that the reader has taken, for the writer to see free room
//	64  16n entries, n a power of two: length of the write (8 bytes), then stamp (8 bytes)
//
// The stamp of entry number k (from 0, at place k mod n) is (k+1) mod 2³² in its high half and the
// immediate in its low half. Storing it publishes the entry: until then the place holds the stamp of
// entry k−n, or zero in the first lap, so the reader knows a fresh entry from a stale one, and both
// from rubbish, and needs no line for the writer's count.
const (
	ringEntries  = 64
	ringEntry    = 16
	maxRecvDepth = 1 << 20
	ringPurpose  = "shm completion rings"
)

func ringDepth(want int) int  { return 1 << bits.Len(uint(want-1)) }
func ringBytes(depth int) int { return ringEntries + ringEntry*depth }

func stampOf(k uint64, imm uint32) uint64 { return uint64(uint32(k+1))<<32 | uint64(imm) }

// inbox is the reader's side. One goroutine takes at a time; any may ask ready.
type inbox struct {
	mem     *hostmem.Block
	head    atomic.Uint64   // entries taken
	seen    *atomic.Uint64  // the shared copy of head
	entries []atomic.Uint64 // length, stamp, length, stamp, …
	mask    uint64
}

func newInbox(depth int) (*inbox, error) {
	depth = ringDepth(depth)
	mem, err := hostmem.AllocShared(ringBytes(depth), ringPurpose)
	if err != nil {
		return nil, err
	}
	b := mem.Bytes()
	return &inbox{
		mem: mem, seen: hostmem.Word64(b, 0),
		entries: hostmem.Words64(b, ringEntries, 2*depth), mask: uint64(depth) - 1,
	}, nil
}

func (in *inbox) depth() int { return int(in.mask) + 1 }

// ready tells whether take would find an entry or rubbish.
func (in *inbox) ready() bool {
	k := in.head.Load()
	return uint32(in.entries[2*(k&in.mask)+1].Load()>>32) != in.stale(k)
}

// stale is the high half of the stamp of entry k−n, which place k mod n holds before entry k.
func (in *inbox) stale(k uint64) uint32 {
	if k <= in.mask {
		return 0
	}
	return uint32(k - in.mask) // (k−n)+1 with n = mask+1
}

// take removes the next entry. ok is false if there is none. The error says that the peer wrote
// what no writer of this package writes.
func (in *inbox) take() (imm uint32, length int, ok bool, err error) {
	k := in.head.Load()
	place := 2 * (k & in.mask)
	stamp := in.entries[place+1].Load()
	high := uint32(stamp >> 32)
	if high != uint32(k+1) {
		if high == in.stale(k) {
			return 0, 0, false, nil
		}
		return 0, 0, false, fmt.Errorf("completion ring is corrupt: entry %d has stamp %#x", k, stamp)
	}
	n := in.entries[place].Load()
	if n > maxMessage {
		return 0, 0, false, fmt.Errorf("completion ring is corrupt: entry %d tells of %d bytes", k, n)
	}
	in.head.Store(k + 1)
	return uint32(stamp), int(n), true, nil
}

// release shows the writer how far take has come.
func (in *inbox) release() { in.seen.Store(in.head.Load()) }

// outbox is the writer's side, used by one goroutine at a time.
type outbox struct {
	mem     *hostmem.Block
	seen    *atomic.Uint64
	entries []atomic.Uint64
	mask    uint64
	tail    uint64 // entries written
	head    uint64 // entries known to be taken, ≤ tail
}

// newOutbox takes over the mapped ring of a peer.
func newOutbox(mem *hostmem.Block, depth int) *outbox {
	b := mem.Bytes()
	return &outbox{
		mem: mem, seen: hostmem.Word64(b, 0),
		entries: hostmem.Words64(b, ringEntries, 2*depth), mask: uint64(depth) - 1,
	}
}

// room tells whether put has a free place. The peer's count is believed only as far as it can be true.
func (out *outbox) room() bool {
	if out.tail-out.head <= out.mask {
		return true
	}
	if seen := out.seen.Load(); seen > out.head && seen <= out.tail {
		out.head = seen
	}
	return out.tail-out.head <= out.mask
}

// put publishes an entry; room must have said that there is a place.
func (out *outbox) put(imm uint32, length int) {
	place := 2 * (out.tail & out.mask)
	out.entries[place].Store(uint64(length))
	out.entries[place+1].Store(stampOf(out.tail, imm))
	out.tail++
}

// validDepth tells whether a peer's ring depth is one that this package makes.
func validDepth(depth uint32) bool {
	return depth != 0 && depth <= maxRecvDepth && depth&(depth-1) == 0 && depth <= math.MaxInt32
}

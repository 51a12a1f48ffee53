package link

import (
	"fmt"
	"sync/atomic"
)

// lineBytes is the size of a slot's header: one cache line.
const lineBytes = 64

// InlineBytes is how much payload fits into the header's line. What goes on in the lines behind it: see [SpreadBytes].
const InlineBytes = 32

// MaxMessage bounds one message; 30 bits of the publication word. Longer spans are not lent or placed.
const MaxMessage = 1<<30 - 1

// kind says where the bytes of a message are.
type kind uint8

const (
	inLine  kind = iota // in the header's own cache line, and headers behind it
	inSlot              // behind the header
	lent                // in the sender's registered memory
	placedK             // in the receiver's destination already
)

// header is the first cache line of a slot.
type header struct {
	// pub is stored last by the sender: sequence number of the message plus one in the low 16
	// bits, then 16 of how many messages of the other direction it has consumed, 30 of the length and
	// 2 of the kind.
	pub  atomic.Uint64
	call Call
	// inline holds the first 32 payload bytes (inLine); for inSlot: offset in the payload memory and, over posted writes,
	// behindHeader, inOwnSlot or nowhere, and the number of grants seen; for lent: window, offset of the span, and window, offset of the sender's Out for
	// placed messages in return.
	inline [4]uint64
}

// Where the payload of a posted message is. That of one that is placed has a slot at the sender, or not.
const (
	behindHeader = iota // in its entry
	inOwnSlot           // in the slot of the message's number
	nowhere             // in the place that was granted, and in no slot here or at the sender
)

func publication(seq, consumed uint32, n int, k kind) uint64 {
	return uint64(uint16(seq+1)) | uint64(uint16(consumed))<<16 | uint64(n)<<32 | uint64(k)<<62
}

// published reports whether a publication word is that of message seq. What else the word can be is an
// earlier lap's: at most 4096 messages ago.
func published(v uint64, seq uint32) bool { return uint16(v) == uint16(seq+1) }

// creditOf returns how many messages the sender of a publication word had consumed, modulo 2¹⁶.
func creditOf(v uint64) uint16 { return uint16(v >> 16) }

func parsePublication(v uint64) (n int, k kind) {
	return int(v >> 32 & MaxMessage), kind(v >> 62)
}

// Call identifies the call that a message belongs to. FP is compared; A and B are its description,
// for the error when it differs.
type Call struct {
	FP   uint64
	A, B uint64
}

// Set makes c like o word by word: a longer load of what has been stored by words waits until that has left the processor's store
// buffer, where it may be behind a store for a line that is at a peer.
func (c *Call) Set(o *Call) { c.FP, c.A, c.B = o.FP, o.A, o.B }

// Mismatch is the error of a receiver whose peer is in another call than itself.
type Mismatch struct {
	Peer         int // the rank that sent Theirs
	Mine, Theirs Call
}

// Error says that the calls differ; package collective knows how to describe them.
func (e *Mismatch) Error() string {
	return fmt.Sprintf("rank %d is in another call: fingerprint %#x, here %#x", e.Peer, e.Theirs.FP, e.Mine.FP)
}

// Corrupt is the error of a message that no correct peer could have sent.
type Corrupt struct {
	Peer, Lane int
	What       string
}

// Error says what was wrong with the message.
func (e *Corrupt) Error() string {
	return fmt.Sprintf("corrupt message from rank %d on lane %d: %s", e.Peer, e.Lane, e.What)
}

// Place is a span of registered memory as a link names it: a window known to both ranks (see
// [Peer.SetWindow]) and an offset in it. Window 0 means none.
type Place struct {
	Window uint64
	Offset uint64
}

package link

import "fmt"

// Geometry is the shape of every ring of a communicator. All ranks must use the same.
type Geometry struct {
	Lanes     int // links from one rank to another
	Slots     int // messages a link holds, a power of two
	SlotBytes int // longest eager message, a multiple of 64
	// PoolLanes is how many lanes, from the first, have slots for messages to several peers at once (see [Share]), and
	// PoolBytes the longest such message, a multiple of 64.
	PoolLanes, PoolBytes int
	// Checksum has every message carry a sum of itself, which its receiver checks.
	Checksum bool
}

// arenaHead is the page that an arena begins with, for the rank's pulse.
const arenaHead = 4096

// noticeBytes is the size of the board on which a peer leaves its last words.
const noticeBytes = 1024

// Check reports what is wrong with g.
func (g Geometry) Check() error {
	switch {
	case g.Lanes < 1 || g.Lanes > 64:
		return fmt.Errorf("link: %d lanes, want 1 to 64", g.Lanes)
	case g.Slots < 2 || g.Slots > 1<<12 || g.Slots&(g.Slots-1) != 0:
		return fmt.Errorf("link: %d slots, want a power of two from 2 to 4096", g.Slots)
	case g.SlotBytes < 64 || g.SlotBytes%64 != 0 || g.SlotBytes > MaxMessage:
		return fmt.Errorf("link: slots of %d bytes, want a multiple of 64 from 64 to 1 GiB", g.SlotBytes)
	case g.PoolLanes < 0 || g.PoolLanes > g.Lanes:
		return fmt.Errorf("link: shared slots on %d lanes of %d", g.PoolLanes, g.Lanes)
	case g.PoolLanes > 0 && (g.PoolBytes < 64 || g.PoolBytes%64 != 0 || g.PoolBytes > MaxMessage):
		return fmt.Errorf("link: shared slots of %d bytes, want a multiple of 64 from 64 to 1 GiB", g.PoolBytes)
	}
	return nil
}

// batch is how many consumed messages make a credit due: a receiver holds back less.
func (g Geometry) batch() int { return max(1, g.Slots/creditBatch) }

// lag is how many consumed messages make a credit due, however few of them have payload slots.
func (g Geometry) lag() int { return max(1, g.headers()/creditBatch) }

// Usable is how many slots of a link a sender can count on: those whose credit is not held back.
// Proofs of freedom from deadlock are for so many.
func (g Geometry) Usable() int { return g.Slots - g.batch() + 1 }

// headersLeast is the least number of headers of a ring over mapped memory, where they are not tied to slots: one
// page or two. A rank that sends 8 bytes at a time and waits for nothing runs so far ahead, which saves
// context switches where ranks outnumber cores (measured, Broadcast to 2, 4 and 8 ranks on 2 cores, far: 86, 410 and
// 1000 ns a call with 64, 72, 360 and 640 with 128, 66, 280 and 490 with 256). It is less than the calls that the
// flight recorder keeps, so that the record of who is ahead still has the call of who is behind.
const headersLeast = 128

func (g Geometry) headers() int { return max(g.Slots, headersLeast) }

func (g Geometry) laneBytes() int { return lineBytes + g.headers()*lineBytes + g.Slots*g.roomBytes() }

// roomBytes is a slot without its header: the longest message, and a line for its sum.
func (g Geometry) roomBytes() int {
	if g.Checksum {
		return g.SlotBytes + lineBytes
	}
	return g.SlotBytes
}

// sectionBytes is the memory that a rank keeps for one peer: a board, and per lane the credit line
// of its own sends and the slots of the peer's.
func (g Geometry) sectionBytes() int {
	return (noticeBytes + g.Lanes*g.laneBytes() + 4095) &^ 4095
}

// touched are the parts of a section that are visited beforehand: the board with the first lanes, and the
// last lane, that of single transfers; without lanes, the board alone.
func (g Geometry) touched(section []byte, lanes int) [2][]byte {
	if lanes == 0 {
		return [2][]byte{section[:g.creditOffset(0)]}
	}
	return parts(section, g.creditOffset(lanes), g.creditOffset(g.Lanes-1))
}

// parts are the beginning of a section up to first or, if that comes before, to last, and its end from there.
func parts(section []byte, first, last int) [2][]byte {
	return [2][]byte{section[:min(last, first)], section[last:]}
}

// Offsets inside a section over mapped memory: of a lane all headers, then all payloads. Over posted writes see posted.
func (g Geometry) creditOffset(lane int) int { return noticeBytes + lane*g.laneBytes() }
func (g Geometry) headerOffset(lane, i int) int {
	return g.creditOffset(lane) + lineBytes + i*lineBytes
}
func (g Geometry) payloadOffset(lane int) int { return g.headerOffset(lane, g.headers()) }

// poolLane is the memory of a lane's shared slots, poolBytes that of all.
func (g Geometry) poolLane() int  { return g.Slots * (g.PoolBytes + g.poolShortBytes()) }
func (g Geometry) poolBytes() int { return (g.PoolLanes*g.poolLane() + 4095) &^ 4095 }

package link

import (
	"errors"
	"fmt"
	"slices"
)

// poolWindow is the window by which peers know a rank's pool (see [Share]); windows of Alloc count up from 1.
const poolWindow = 1 << 63

// Share sends the same bytes to several peers that map this rank's memory: it copies them once, into a slot of
// this rank's pool, and lends that to every peer. A lane of the pool has as many slots as a link, and a slot is free
// again when all who were lent it have released it. So a share is, to each of its peers, a link with slots of its own
// besides the peer's payload slots, and proofs of freedom from deadlock hold as long as all that a lane shares
// in a call goes to the same peers.
//
// One goroutine uses a lane's shares and senders at a time.
type Share struct {
	pool *pool
	to   []*memSender
}

// pool is one lane's slots for shares, in this rank's arena: a ring of long ones and one of short ones, so that short
// messages do not walk through the pages of long ones, which costs address translations (AllReduce of 64 KiB, 8 ranks: 215
// µs for 165).
type pool struct {
	long, short poolRing
	ring        *poolRing // of the current reservation
	room        int       // its length
}

type poolRing struct {
	base  uint64 // offset of the slots in the window
	slots []poolSlot
	used  int      // slots in use; another one only when all of these are lent
	next  int      // slot of the next message, if it is free
	open  openSlot // slot next, if messages lie in it
}

type poolSlot struct {
	b    []byte
	lent []loan // that may not have been released
}

// loan is a message that lends a slot.
type loan struct {
	to  *memSender
	seq uint32
}

// shortSlot is the length of short slots, at most a long one's.
const shortSlot = 32 << 10

// poolShortBytes is the length of a pool's short slots.
func (g Geometry) poolShortBytes() int { return min(shortSlot, g.PoolBytes) }

// longFirst is how many long slots are used before a sender runs ahead of all of them.
const longFirst = 2

// visited is the part of a pool that is visited beforehand: of the first lane, the short slots and the first long ones. A page
// costs 8 µs of everyone who touches it: all long slots took New of 8 ranks 0.2 s of 2 cores, and left to their first use
// AllGather of 1 MiB 9 ms a call in its first 30 ms.
func (g Geometry) visited(pool []byte) []byte {
	return pool[:g.Slots*g.poolShortBytes()+longFirst*g.PoolBytes]
}

// Share returns what sends to all of these peers at once on a lane, or nil where it would save nothing or one of
// them cannot read this rank's pool.
func (m *Mesh) Share(lane int, peers []*Peer) *Share {
	if len(peers) < 2 || lane >= len(peers[0].port.pools) {
		return nil
	}
	s := &Share{pool: &peers[0].port.pools[lane]}
	for _, p := range peers {
		sender, ok := p.senders[lane].(*memSender)
		if !ok || p.port != peers[0].port {
			return nil
		}
		s.to = append(s.to, sender)
	}
	return s
}

// Reserve returns memory for the next message, at most max bytes and at most a slot, or false if no slot is free or
// some peer's link has no room. Nothing is sent before Commit; reserving again returns the same memory.
func (s *Share) Reserve(max int) ([]byte, bool) {
	p := s.pool
	if p.ring = &p.long; max <= len(p.short.slots[0].b) {
		p.ring = &p.short
	}
	if p.ring.open.taken > 0 && !s.joins(max) {
		p.ring.pass()
	}
	if p.ring.open.taken == 0 && !p.ring.free() {
		return nil, false
	}
	for _, to := range s.to {
		if to.full() {
			return nil, false
		}
	}
	b := p.ring.slots[p.ring.next].b[p.ring.open.taken:]
	p.room = min(max, len(b))
	return b[:p.room:p.room], true
}

// joins reports whether a message may lie in the ring's open slot, as in memSender's.
func (s *Share) joins(max int) bool {
	r := s.pool.ring
	return r.open.fits(max, len(r.slots[r.next].b)) &&
		!slices.ContainsFunc(s.to, func(to *memSender) bool { return !to.leads() })
}

// Commit sends what Reserve returned to all peers.
func (s *Share) Commit(c *Call) {
	r := s.pool.ring
	slot := &r.slots[r.next]
	at := r.base + uint64(r.next*len(slot.b)+r.open.taken)
	for _, to := range s.to {
		slot.lent = append(slot.lent, loan{to, to.next})
		to.headers[to.next&to.mask].inline = [4]uint64{poolWindow, at}
		to.publish(s.pool.room, lent, c)
	}
	r.open.add(r.open.taken, s.pool.room)
}

// free looks for a free slot for the next message, and reports false if all are lent.
func (r *poolRing) free() bool {
	for range r.used {
		if r.slots[r.next].free() {
			return true
		}
		r.pass()
	}
	if r.used == len(r.slots) {
		return false
	}
	r.next = r.used
	r.used++
	return true
}

func (r *poolRing) pass() {
	r.open = openSlot{}
	if r.next++; r.next == r.used {
		r.next = 0
	}
}

// free reports whether all have released the slot.
func (s *poolSlot) free() bool {
	for len(s.lent) > 0 {
		last := s.lent[len(s.lent)-1]
		if last.to.holds(last.seq) {
			return false
		}
		s.lent = s.lent[:len(s.lent)-1]
	}
	return true
}

// Waiting calls f for every peer without which Reserve returns false.
func (s *Share) Waiting(max int, f func(*Peer)) {
	if _, ok := s.Reserve(max); ok {
		return
	}
	if r := s.pool.ring; r.open.taken == 0 && !r.free() {
		for i := range r.slots {
			for _, l := range r.slots[i].lent {
				if l.to.holds(l.seq) {
					f(l.to.peer)
				}
			}
		}
	}
	for _, to := range s.to {
		if to.full() {
			f(to.peer)
		}
	}
}

// holds reports whether the peer has not consumed message seq, which has been sent. It is counted back from next,
// because sequence numbers wrap. A message that is out is at most a ring back, and so never taken for a consumed one. A slot of
// a pool that lay unused for 2³² messages of the lane, to within a ring, counts as held until what is out now has been consumed.
func (s *memSender) holds(seq uint32) bool {
	if s.next-s.consumed < s.next-seq {
		return false
	}
	s.refresh()
	return s.next-s.consumed >= s.next-seq
}

// pooled reports whether the arena of a port that has its endpoints shall end in a pool.
func (m *Mesh) pooled(pt *port) bool {
	if m.geo.PoolLanes == 0 || m.geo.Checksum || m.lazy || len(pt.peers) < 2 {
		return false
	}
	for _, p := range pt.peers {
		if !p.mappable() {
			return false
		}
	}
	return true
}

// layPools divides the end of an arena into the lanes' slots, and visits those that are used first.
func (pt *port) layPools(g Geometry) {
	arena := pt.arena.Bytes()
	window := arena[len(arena)-g.poolBytes():]
	visit(g.visited(window))
	pt.pools = make([]pool, g.PoolLanes)
	for lane := range pt.pools {
		p := &pt.pools[lane]
		at := lane * g.poolLane()
		p.short = newRing(window, at, g.Slots, g.poolShortBytes(), len(pt.peers))
		p.long = newRing(window, at+g.Slots*g.poolShortBytes(), g.Slots, g.PoolBytes, len(pt.peers))
		p.long.used, p.short.used = longFirst, g.Slots
		p.ring = &p.long
	}
}

func newRing(window []byte, base, slots, length, peers int) poolRing {
	r := poolRing{base: uint64(base)}
	for i := range slots {
		r.slots = append(r.slots, poolSlot{b: window[base+i*length:][:length:length], lent: make([]loan, 0, peers)})
	}
	return r
}

// poolOffset is the offset of the pools in the arena; 0: there are none.
func (pt *port) poolOffset(g Geometry) int {
	if pt.pools == nil {
		return 0
	}
	return len(pt.arena.Bytes()) - g.poolBytes()
}

// connectPool takes note of the pool in the peer's arena, and makes the part accessible that is not left to its first use.
func (p *Peer) connectPool(arena []byte, at uint64) error {
	g := p.mesh.geo
	if at == 0 {
		return nil
	}
	if g.PoolLanes == 0 {
		return errors.New("shared slots, of which there are none here")
	}
	if at > uint64(len(arena)) || uint64(len(arena))-at < uint64(g.poolBytes()) {
		return fmt.Errorf("shared slots at %d in an arena of %d bytes", at, len(arena))
	}
	p.pool = arena[at:][:g.poolBytes()]
	return p.populate(g.visited(p.pool))
}

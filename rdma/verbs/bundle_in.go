package verbs

import (
	"encoding/binary"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/internal/rail"
)

// incoming is the receiving direction of a bundle, under its mu.
type incoming struct {
	frozen bool     // a rail is lost and the peer has not begun again: nothing is delivered
	round  int      // lost rails when the peer began the last time
	began  rail.Set // the rails that it had then

	next    uint64 // which write with immediate is to be delivered next
	granted uint64 // those below it have landed, since the peer said so with "again"
	arrived uint64 // those below it have been announced
	landed  uint64 // the number after the last delivered one's, of all writes

	pieces [rail.Max]struct { // by rail: the latest
		round  int
		number uint32
	}
}

// take takes a completion of rail i.
func (b *bundle) take(i int, c *rdma.Completion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == closed {
		return
	}
	if c.Kind == rdma.Wrote {
		b.acknowledged(i, c)
		return
	}
	kind, round, number := int(c.Imm>>30), int(c.Imm>>numberBits&63), c.Imm&numberMask
	in := &b.in
	switch kind {
	case bundlePiece:
		if p := &in.pieces[i]; round >= p.round {
			p.round, p.number = round, number
		}
	case bundleAnnounce:
		if round != in.round {
			return // sent before it began again, so that it is granted or comes again
		}
		if number != uint32(in.arrived&numberMask) || in.arrived-in.next >= uint64(b.opts.RecvDepth) {
			b.refuse("write %d with immediate is announced instead of %d, %d are unpolled", number, in.arrived&numberMask, in.arrived-in.next)
			return
		}
		in.arrived++
	case bundleLostRails:
		b.heardLost(int(number))
	case bundleAgain:
		b.heardAgain(int(number))
	}
}

// notice reads a slot of the inbox behind the announcements.
func (b *bundle) notice(notice int) (dead rail.Set, x, y uint64) {
	m := b.inbox.Bytes()[(b.opts.RecvDepth+notice)*slotBytes:]
	le := binary.LittleEndian
	return rail.Set(le.Uint64(m)), le.Uint64(m[8:]), le.Uint64(m[16:])
}

// heardLost: the peer has given up n rails in all.
func (b *bundle) heardLost(n int) {
	if n < 1 || n > rail.Max {
		b.refuse("%d lost queue pairs", n)
		return
	}
	dead, landed, _ := b.notice(lostSlot(n))
	if dead.Len() != n || !b.all.Holds(dead) {
		b.refuse("lost queue pairs %#x of %#x", dead, b.all)
		return
	}
	if !dead.Holds(b.out.peerDead) {
		return // an older one
	}
	b.out.peerDead, b.out.peerLanded = dead, landed
	for i, e := range b.subs {
		if dead.Has(i) && b.live().Has(i) {
			e.lost(errGivenUp) // which calls railLost
		}
	}
	b.reconcile()
}

// heardAgain: the peer begins again after n lost rails. If more are lost here, it will once more.
func (b *bundle) heardAgain(n int) {
	if n < 1 || n > rail.Max {
		b.refuse("begins again after %d lost queue pairs", n)
		return
	}
	in := &b.in
	dead, _, nth := b.notice(againSlot(n))
	if dead != b.out.send.Dead() || n <= in.round {
		return
	}
	if nth < in.next || nth-in.next > uint64(b.opts.RecvDepth) {
		b.refuse("begins again with write %d of those with immediate, %d is expected", nth, in.next)
		return
	}
	in.frozen, in.round, in.began = false, n, b.all&^dead
	in.granted, in.arrived = nth, nth
}

// deliver makes the completion of the next write with immediate, if it has landed and what is before it has. mu is held.
func (b *bundle) deliver(c *rdma.Completion) bool {
	in := &b.in
	if in.next == in.arrived || in.frozen && b.state != broken {
		return false
	}
	slot := int(in.next % uint64(b.opts.RecvDepth))
	a := decodeAnnouncement(b.inbox.Bytes()[slot*slotBytes:])
	if a.nth != in.next || a.seq < in.landed {
		if b.state != broken {
			b.refuse("announcement of write %d, with immediate %d, in the place of %d from %d on", a.seq, a.nth, in.next, in.landed)
		}
		return false
	}
	if in.next >= in.granted {
		if a.round != uint32(in.round) { // written again, and the "again" before it not read yet
			return false
		}
		lead := in.began.Lead()
		for i := range rail.Max {
			if p := &in.pieces[i]; a.stripes > 0 && in.began.Has(i) && i != lead && (p.round != in.round || (p.number-a.stripes)&numberMask >= 1<<(numberBits-1)) {
				return false
			}
		}
	}
	in.next++
	in.landed = a.seq + 1
	*c = rdma.Completion{Kind: rdma.Received, Endpoint: b.id, Imm: a.imm, Len: int(a.bytes)}
	return true
}

// harvest makes completions of what has arrived and of what has landed at the peer.
func (b *bundle) harvest(cs []rdma.Completion) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == closed {
		return 0
	}
	n := 0
	for n < len(cs) && b.deliver(&cs[n]) {
		n++
	}
	o := &b.out
	live := b.live()
	for n < len(cs) && o.head < o.next && (b.state == broken || o.complete(o.head, live)) {
		r := o.at(o.head)
		if r.cut {
			o.pieces--
		}
		var err error
		if !o.complete(o.head, live) {
			err = b.cause
		}
		if o.head++; r.w.Signaled {
			cs[n] = rdma.Completion{Kind: rdma.Wrote, Endpoint: b.id, ID: r.w.ID, Err: err}
			n++
		}
		r.w.Local, r.w.Region = nil, nil
	}
	b.pump()
	return n
}

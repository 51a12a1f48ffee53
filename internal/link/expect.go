package link

import (
	"fmt"

	"github.com/gccl/gccl/rdma"
)

// expected is where the messages that a wireReceiver waits for shall land instead of in their slots.
// Senders fill slots when they send from where data lies, and so it supposes that every message but
// the last is a slot long. A shorter one shows that later ones landed too far on; the reader copies them then.
type expected struct {
	arena rdma.Redirector // nil: there is no other place
	rest  []byte          // not yet asked for
	next  uint32          // sequence number of the message at rest
	slots []landing
}

// landing is the place of one slot's next message.
type landing struct {
	offset int    // of the slot's payload in the arena
	dst    []byte // nil: the slot
	got    int    // bytes that landed in dst; −1: not yet known, or none
}

// Expect implements Receiver.
func (r *wireReceiver) Expect(dst []byte, at Place, c *Call) {
	x := &r.expected
	if x.arena == nil {
		r.grantNext(len(dst), at, c)
		return
	}
	if r.open || r.stash.kept != nil || len(dst) <= r.geo.shortBytes() {
		return
	}
	for seq := r.l.taken; seq-r.l.taken < uint32(len(x.slots)); seq++ {
		x.end(seq)
	}
	x.rest, x.next = dst, r.l.taken
	r.ask()
}

// ask redirects as many messages as there are slots for.
func (r *wireReceiver) ask() {
	x := &r.expected
	for len(x.rest) > 0 && x.next-r.l.taken < uint32(len(x.slots)) {
		n := min(len(x.rest), r.geo.SlotBytes)
		if int32(x.next-r.l.arrived) >= 0 && n > r.geo.shortBytes() {
			s := &x.slots[x.next%uint32(len(x.slots))]
			s.dst, s.got = x.rest[:n], -1
			x.arena.Redirect(s.offset, s.dst)
		}
		x.rest = x.rest[n:]
		x.next++
	}
}

// place returns where message seq of n bytes, which has arrived in slot, is.
func (r *wireReceiver) place(seq uint32, slot []byte, n int) ([]byte, error) {
	s := &r.expected.slots[seq%uint32(len(r.expected.slots))]
	if s.dst == nil {
		return slot[:n], nil
	}
	if s.got < 0 {
		if s.got = r.expected.arena.Redirected(s.offset); s.got < 0 {
			s.dst = nil
			return slot[:n], nil
		}
	}
	if s.got != n {
		return nil, &Corrupt{r.wire.peer.Rank, r.lane, fmt.Sprintf("message of %d bytes, of which %d were sent", n, s.got)}
	}
	return s.dst[:n], nil
}

// end has message seq land in its slot again.
func (x *expected) end(seq uint32) {
	s := &x.slots[seq%uint32(len(x.slots))]
	if s.dst != nil && s.got < 0 {
		x.arena.Redirected(s.offset)
	}
	s.dst, s.got = nil, -1
}

// Release gives the memory of a run that failed back to its caller: this rank stores nothing in it, and sends nothing from
// it, any more. What peers may still do to registered memory is for Withdraw; nothing takes it from those that map it: they
// look at Failed before each piece that they place there, and finish the one they have begun when they get on.
func (m *Mesh) Release() {
	m.unexpect()
	for w := range m.wires() {
		w.mu.Lock()
		w.keepLocked()
		w.mu.Unlock()
	}
}

// unexpect ends what receivers were told to expect.
func (m *Mesh) unexpect() {
	for _, pt := range *m.ports.Load() {
		if arena, ok := pt.arena.(rdma.Redirector); ok {
			arena.Restore()
		}
	}
	for w := range m.wires() {
		for _, r := range w.peer.receives {
			if r, ok := r.(*wireReceiver); ok { // with checksums all messages stay in their slots
				r.expected.rest = nil
				for i := range r.expected.slots {
					s := &r.expected.slots[i]
					s.dst, s.got = nil, -1
				}
			}
		}
	}
}

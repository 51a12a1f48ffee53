package link

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gccl/gccl/rdma"
)

// Long transfers over posted writes between registered memory need no slots: the receiver of a transfer that
// goes to a window grants its sender that place, and the sender writes there, from its own memory if that is
// registered, and then says "placed" in a header as of any message. A message is placed behind what messages
// before it have brought of the transfer, by slots or otherwise, so that both ends know where.
//
// A grant is for one transfer of its length and its call's fingerprint: that which begins with a message of its number, or, if it
// is given ahead, the only one of the call. It ends with the transfer's last message, after which nothing more is
// written there, because writes land in the order posted. Nobody needs a grant to get on: a sender without one uses
// slots.
//
// After a failure, what has been granted is taken back by breaking the connection (Mesh.Withdraw).

// GrantMin is the shortest transfer for which a place is granted, and whose registered source is sent from where it
// lies: a grant is a write more, and the source must be left alone until the peer's card has acknowledged it.
const GrantMin = 64 << 10

// grantLines is how many grants of a lane may hold, be under way, or not have been looked at. A sender that runs ahead of
// its receiver looks at none for a while.
const grantLines = 4

// grant is where a transfer may be written.
type grant struct {
	first  uint32 // number of the message that begins the transfer
	ahead  bool   // it is not known: the call has no other long transfer on the lane
	fp     uint64 // of its call
	at     Place  // in the receiver's memory
	length uint64 // of the transfer; 0: no grant
}

const (
	grantBytes = 40
	anyFirst   = 1 << 63
)

func (g *grant) encode(b []byte) {
	first := uint64(g.first)
	if g.ahead {
		first = anyFirst
	}
	binary.LittleEndian.PutUint64(b, first)
	for i, v := range [...]uint64{g.fp, g.at.Window, g.at.Offset, g.length} {
		binary.LittleEndian.PutUint64(b[8+8*i:], v)
	}
}

// decodeGrant reads a line that has arrived, and refuses what is not in the peer's windows. A grant of a window that this rank has
// freed meanwhile is none (length 0): it came too late for this rank's part of the call, which is over.
func (p *Peer) decodeGrant(b []byte) (g grant, why string) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	g = grant{first: uint32(word(0)), ahead: word(0) == anyFirst, fp: word(1), at: Place{word(2), word(3)}, length: word(4)}
	w := p.shownAt(g.at)
	switch {
	case w == nil && g.at.Window > 0 && g.at.Window < uint64(len(p.shown)):
		return grant{}, ""
	case w == nil:
		return g, fmt.Sprintf("grant of window %d, which is not there", g.at.Window)
	}
	if n := w.theirs.Len; g.length == 0 || g.at.Offset > n || g.length > n-g.at.Offset {
		return g, fmt.Sprintf("grant of %d bytes at %d of window %d of %d bytes", g.length, g.at.Offset, g.at.Window, n)
	}
	return g, ""
}

// shown is a window of both ranks, on the device that connects them.
type shown struct {
	mine   rdma.Region
	theirs rdma.RemoteRegion
}

// show makes a window known for grants. The peer's memory is not mapped. A provider that lets its user redirect what
// arrives has no need of them.
func (p *Peer) show(id int, mine rdma.Region, theirs rdma.RemoteRegion) {
	if !p.withdraws() {
		return
	}
	for len(p.shown) <= id {
		p.shown = append(p.shown, shown{})
	}
	p.shown[id] = shown{mine, theirs}
}

// shownAt returns the window of a place, or nil if it is none, or is not registered for this peer.
func (p *Peer) shownAt(at Place) *shown {
	if at.Window == 0 || at.Window >= uint64(len(p.shown)) || p.shown[at.Window].mine == nil {
		return nil
	}
	return &p.shown[at.Window]
}

// Sends reports whether messages of a long transfer can be sent from where it lies, at a place that is registered:
// Sender.ReserveFrom may then be called, as for a peer that is Direct.
func (p *Peer) Sends(at Place) bool { return p.shownAt(at) != nil && !p.mesh.geo.Checksum }

// transfer is what a sender knows of the transfer that it is sending, if that is a long one.
type transfer struct {
	first      uint32
	size, done int
	since      time.Time // when waiting for the grant began
	hasty      bool      // do not wait
	// Waiting in vain is dear: the next time it is left out once, then three times, up to patienceMost.
	skip, vain int
}

const patienceMost = 63

// placedMost bounds a message that is placed, in bytes, whole elements: one that takes the network longer than the heartbeat allows would
// be the only thing to come from this rank meanwhile, whose signs of life wait behind it.
const placedMost = 16 << 20

// patience is how long a sender waits for a grant, once it has sent a message ahead: as long as the transfer would take at 1 GB/s,
// which is several times what copying it costs both ends.
func patience(size int) time.Duration { return time.Duration(size) * time.Nanosecond }

// Begin implements Sender.
func (s *wireSender) Begin(size int) {
	t := &s.transfer
	t.first, t.size, t.done, t.since = s.l.sent, size, 0, time.Time{}
	if t.hasty = t.skip > 0; t.hasty {
		t.skip--
	}
}

// granted returns the grant of the transfer that is being sent, or nil.
func (s *wireSender) granted(c *Call) *grant {
	t := &s.transfer
	if t.done == t.size {
		return nil
	}
	for i := range s.l.granted {
		g := &s.l.granted[i]
		if g.fp == c.FP && g.length == uint64(t.size) && (g.ahead || g.first == t.first) {
			t.vain, t.skip = 0, 0
			return g
		}
	}
	return nil
}

// awaits reports whether the transfer is to wait for a grant rather than fill slots. It is not before a message has
// been sent, which takes as long as a grant does to come.
func (s *wireSender) awaits() bool {
	t := &s.transfer
	if t.hasty || t.done == 0 || t.done == t.size {
		return false
	}
	now := time.Now()
	switch {
	case t.since.IsZero():
		t.since = now
	case now.Sub(t.since) > patience(t.size) || s.wire.peer.gone.Load() != nil:
		t.hasty = true
		t.vain = min(2*t.vain+1, patienceMost)
		t.skip = t.vain
		return false
	}
	s.wire.peer.mesh.hurry = true
	return true
}

// ReserveFrom implements Sender.
func (s *wireSender) ReserveFrom(src []byte, at Place, c *Call) (n int, ok bool) {
	s.from = nil
	if w := s.wire.peer.shownAt(at); w != nil && len(src) > s.geo.shortBytes() {
		s.from = w.mine
		if s.granted(c) != nil {
			if s.noEntry() {
				s.wire.peer.awaited()
				return 0, false
			}
			s.room = src[:min(len(src), s.wire.most)] // CommitFrom sends it from there
			return len(s.room), true
		}
		if s.awaits() {
			s.wire.peer.awaited()
			return 0, false
		}
	}
	b, ok := s.Reserve(len(src))
	return len(b), ok
}

// CommitFrom posts the bytes from where they are, then the header.
func (s *wireSender) CommitFrom(src []byte, c *Call) {
	if s.short() {
		s.Commit(copy(s.room, src), c)
		return
	}
	s.pay(rdma.Write{Local: src, Region: s.from}, len(src), false, c)
}

// pay posts a payload to the place that is granted, or into the message's slot, then the header. staged: it lies in the staging slot.
func (s *wireSender) pay(w rdma.Write, n int, staged bool, c *Call) {
	p, k := s.wire.peer, inSlot
	w.Remote, w.Offset = p.remote, p.base+uint64(s.geo.slotOffset(s.lane, s.slot()))
	if g := s.granted(c); g != nil {
		w.Remote, w.Offset = p.shown[g.at.Window].theirs, g.at.Offset+uint64(s.done)
		k = placedK
		s.wire.placed++
	}
	where := uint64(nowhere)
	if staged || k == inSlot {
		where = inOwnSlot
		s.l.busy[s.slot()] = true
	}
	s.headers[s.entry()].inline = [4]uint64{0, where, uint64(s.l.grants)}
	s.publish(n, k, lineBytes, c, w)
}

// granting is what a receiver has granted.
type granting struct {
	holds        []hold // in the order of their transfers
	grants, seen uint32 // grants sent; of them, those that the sender has looked at, as it has said
}

// hold is a grant that may be used.
type hold struct {
	fp   uint64
	left int // bytes of the transfer that have not been consumed
}

// held returns what is granted of a call, or nil.
func (g *granting) held(c *Call) *hold {
	for i := range g.holds {
		if g.holds[i].fp == c.FP {
			return &g.holds[i]
		}
	}
	return nil
}

// mayPlace reports whether a message can be one of n bytes that are placed.
func (g *granting) mayPlace(h *header, n int, k kind) bool {
	x := g.held(&h.call)
	return k == placedK && x != nil && n > 0 && n <= x.left
}

// passed takes note of a message that leaves its entry.
func (g *granting) passed(h *header, v uint64) {
	if len(g.holds) == 0 && g.seen == g.grants {
		return
	}
	n, k := parsePublication(v)
	if x := g.held(&h.call); x != nil {
		if x.left -= n; x.left <= 0 {
			g.holds = slices.DeleteFunc(g.holds, func(x hold) bool { return x.left <= 0 })
		}
	}
	if k == placedK || k == inSlot && h.inline[1] == inOwnSlot {
		if seen := uint32(h.inline[2]); seen-g.seen <= g.grants-g.seen {
			g.seen = seen
		}
	}
}

// grantable reports whether another grant can be given, for a transfer of a call.
func (r *wireReceiver) grantable(n int, at Place, c *Call) bool {
	return n >= GrantMin && c.FP != 0 && r.held(c) == nil && r.wire.peer.shownAt(at) != nil && r.stash.kept == nil && r.grants-r.seen < grantLines && len(r.holds) < grantLines
}

// grantNext grants the sender of the next transfer its destination, if that is in a window and has not been granted ahead.
func (r *wireReceiver) grantNext(n int, at Place, c *Call) {
	if r.open || !r.grantable(n, at, c) {
		return
	}
	have := 0 // bytes that have come by slots already
	for seq := r.l.taken; seq-r.l.taken < uint32(len(r.headers)); seq++ {
		v := r.headers[seq%uint32(len(r.headers))].pub.Load()
		if int32(r.l.arrived-seq) <= 0 && !(r.wire.early && published(v, seq)) { // what memory shows is good enough here
			break
		}
		m, _ := parsePublication(v)
		if have += m; have >= n {
			return
		}
	}
	r.give(grant{first: r.l.taken, fp: c.FP, at: at, length: uint64(n)})
}

// ExpectAhead implements Receiver.
func (r *wireReceiver) ExpectAhead(n int, at Place, c *Call) bool {
	if !r.grantable(n, at, c) {
		return false
	}
	r.give(grant{ahead: true, fp: c.FP, at: at, length: uint64(n)})
	return true
}

// give sends a grant.
func (r *wireReceiver) give(g grant) {
	p := r.wire.peer
	r.holds = append(r.holds, hold{g.fp, int(g.length)})
	line := r.geo.grantOffset(r.lane, int(r.grants%grantLines))
	b := r.wire.staging.Bytes()[line:][:grantBytes]
	g.encode(b)
	r.grants++
	r.wire.post(rdma.Write{Local: b, Region: r.wire.staging, Remote: p.remote, Offset: p.base + uint64(line),
		Imm: r.l.immediate(immGrant, r.lane), HasImm: true})
}

// takeGrant looks at a grant that has arrived.
func (w *wire) takeGrant(l *wireLane, lane int) error {
	line := posted{w.peer.mesh.geo}.grantOffset(lane, int(l.grants%grantLines))
	g, why := w.peer.decodeGrant(w.peer.section[line:][:grantBytes])
	if why != "" {
		return &Corrupt{w.peer.Rank, lane, why}
	}
	l.granted[l.grants%grantLines] = g
	l.grants++
	return nil
}

// Withdraw takes from peers what they may still do to the caller's memory after a failed run: write to places that were granted, and read
// what was sent from where it lies. It breaks their connections, and so is for a mesh that is failed, when
// peers have been told why (Acknowledged), or will not be.
func (m *Mesh) Withdraw() error {
	var first error
	for w := range m.wires() {
		if !w.exposed() {
			continue
		}
		m.life.Lock()
		w.peer.dropped = true // the peer is not lost
		m.life.Unlock()
		if err := w.peer.endpoint.Close(); err != nil && first == nil {
			first = err
		}
		w.torn.Store(false)
	}
	return first
}

// withdraws reports whether there can be something to withdraw between this rank and the peer.
func (p *Peer) withdraws() bool {
	_, redirects := p.port.arena.(rdma.Redirector)
	return p.wire != nil && !redirects
}

// Exposed reports whether there is something to withdraw.
func (m *Mesh) Exposed() bool {
	for w := range m.wires() {
		if w.exposed() {
			return true
		}
	}
	return false
}

func (w *wire) exposed() bool {
	for _, r := range w.peer.receives {
		if r, ok := r.(*wireReceiver); ok && len(r.holds) > 0 {
			return true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done < w.lent || w.torn.Load()
}

// Torn returns the end of a peer to which posting has failed while bytes of the caller's registered memory were on their way: nothing
// says when they have been sent, and so the run must fail, and Withdraw break the connection, before the caller has the memory back.
func (m *Mesh) Torn() *Notice {
	for w := range m.wires() {
		if w.torn.Load() {
			if n := w.peer.Gone(); n != nil {
				return n
			}
		}
	}
	return nil
}

// Hurried reports whether some link has waited for a grant since it was last asked, which it does not do for long.
func (m *Mesh) Hurried() bool {
	h := m.hurry
	m.hurry = false
	return h
}

// Placed is how many messages this rank has sent to where peers granted it.
func (m *Mesh) Placed() (n uint64) {
	for w := range m.wires() {
		n += w.placed
	}
	return n
}

package link

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
)

// Immediate data of a wire link: what the write means, its lane, and for data and credits the
// low bits of the counter of messages that the writer has consumed on the lane.
const (
	immData   = iota << 30
	immCredit // nothing but the counter
	immNotice // the board has been written
)

const (
	immKind  = 3 << 30
	immLane  = 63 << 24
	immValue = 1<<24 - 1
)

// creditBatch is the part of a ring after which a receiver returns credit: one write for several messages.
const creditBatch = 4

// wire carries the links to a peer whose memory is not mapped: messages are staged in registered
// memory and posted as one RDMA write with immediate each.
type wire struct {
	peer    *Peer
	staging rdma.Region // like the peer's section: slots per lane, and the board
	noticed atomic.Bool // the peer's notice has arrived on the board

	mu      sync.Mutex // posts: the owner's messages and, once, a notice from any goroutine
	backlog []rdma.Write
	behind  atomic.Bool // the backlog is not empty
	posted  uint64      // writes so far; the last one's ID
	needed  uint64      // the last one's that is not a beat
	asked   uint64      // the last signaled one's ID
	done    uint64      // all writes to this ID are complete
	auto    bool        // they go on by themselves
	inline  int         // bytes up to which the device takes them at once
	beats   int         // signs of life posted since the last completion
	lanes   []*wireLane

	signs uint64 // messages, credits and notices received; like the lanes, the polling goroutine's
}

// wireLane is both halves of a lane.
type wireLane struct {
	sent, consumed uint32 // sending: next sequence number, peer's credit
	arrived        uint32 // receiving: messages whose write has completed
	taken          uint32 // receiving: messages consumed
	credited       uint32 // receiving: messages whose credit was returned
}

// RecvDepth is how many writes with immediate can be on their way to a rank from one peer: a ring
// of data per lane, the credits for a ring of data in the other direction, and a notice.
func (g Geometry) recvDepth() int { return g.Lanes*(g.Slots+creditBatch+1) + 1 }

func (p *Peer) connectWire() error {
	g := p.mesh.geo
	st, err := p.mesh.alloc(p.port.dev, g.sectionBytes(), fmt.Sprintf("staging for rank %d", p.Rank))
	if err != nil {
		return fmt.Errorf("staging memory for rank %d: %w", p.Rank, err)
	}
	p.visit(st.Bytes())
	p.visit(p.section)
	attr := p.port.dev.Attr()
	w := &wire{peer: p, staging: st, auto: attr.Autonomous, inline: attr.MaxInline}
	p.wire = w
	if _, keeps := p.endpoint.(rdma.Keeper); keeps {
		p.direct = attr.AnyLocal
	}
	p.watch.word = wordAt(p.section)
	base := arenaHead + slices.Index(p.port.peers, p)*g.sectionBytes() // in the arena
	for lane := range g.Lanes {
		l := &wireLane{}
		w.lanes = append(w.lanes, l)
		s := &wireSender{wire: w, lane: lane, l: l}
		r := &wireReceiver{wire: w, lane: lane, l: l}
		r.expected.arena, _ = p.port.arena.(rdma.Redirector)
		for slot := range g.Slots {
			off := g.slotOffset(lane, slot)
			s.headers = append(s.headers, headerAt(st.Bytes()[off:]))
			s.slots = append(s.slots, st.Bytes()[off:][:g.stride()])
			r.headers = append(r.headers, headerAt(p.section[off:]))
			r.payloads = append(r.payloads, p.section[off+lineBytes:][:g.roomBytes():g.roomBytes()])
			r.expected.slots = append(r.expected.slots, landing{offset: base + off + lineBytes, got: -1})
		}
		p.senders, p.receives = append(p.senders, s), append(p.receives, r)
	}
	return nil
}

// signalEvery is how often a completion is asked for where writes go on by themselves: each costs the
// card a write to memory and this rank a look at it.
const signalEvery = 8

// post hands a write to the endpoint, or keeps it until there is room. The bytes are not changed before
// the peer has consumed them, so that inline ones may wait as well.
func (w *wire) post(wr rdma.Write, before ...rdma.Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backlog = append(w.backlog, before...)
	w.needed = w.posted + 1
	w.postLocked(wr)
}

func (w *wire) postLocked(wr rdma.Write) {
	w.posted++
	wr.ID = w.posted
	if !w.auto || w.posted-w.asked >= signalEvery || wr.Imm == immNotice {
		wr.Signaled, w.asked = true, w.posted
	}
	if n := len(wr.Local); n > 0 && n <= w.inline {
		wr.Inline, wr.Region = true, nil
	}
	w.backlog = append(w.backlog, wr)
	w.flush()
}

func (w *wire) flush() {
	if len(w.backlog) == 0 {
		return
	}
	n, err := w.peer.endpoint.Post(w.backlog)
	if err != nil {
		n, w.done = len(w.backlog), w.posted
		w.peer.mesh.lost(w.peer, err)
	}
	w.backlog = w.backlog[:copy(w.backlog, w.backlog[n:])]
	if left := len(w.backlog) > 0; left != w.behind.Load() {
		w.behind.Store(left)
	}
}

// retry posts what waits for room.
func (w *wire) retry() {
	if !w.behind.Load() {
		return
	}
	w.mu.Lock()
	w.flush()
	w.mu.Unlock()
}

func (w *wire) drained() bool {
	if w.auto && !w.peer.direct && !w.behind.Load() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done >= w.needed {
		return true
	}
	if w.peer.gone.Load() != nil { // or silent, and may yet read what was posted
		w.keepLocked()
		w.needed = w.done
		return true
	}
	return w.auto && (len(w.backlog) == 0 || w.backlog[0].ID > w.needed)
}

// keepLocked makes what has been posted independent of callers' memory (Sender.CommitFrom).
func (w *wire) keepLocked() {
	if w.peer.direct {
		for i := range w.backlog {
			if wr := &w.backlog[i]; wr.Region == nil {
				wr.Local = slices.Clone(wr.Local)
			}
		}
		w.peer.endpoint.(rdma.Keeper).Keep()
	}
}

// acknowledged reports whether the last write that asked for a completion is complete.
func (w *wire) acknowledged() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.backlog) == 0 && w.done >= w.asked || w.peer.gone.Load() != nil
}

func (w *wire) tell(n *Notice) {
	b := w.staging.Bytes()[:noticeBytes]
	n.encode(b)
	w.post(rdma.Write{Local: b, Region: w.staging, Remote: w.peer.remote, Offset: w.peer.base, Imm: immNotice, HasImm: true})
}

// completed takes a completion of the peer's endpoint.
func (w *wire) completed(c rdma.Completion) error {
	if c.Kind == rdma.Wrote {
		w.mu.Lock()
		w.done, w.beats = max(w.done, c.ID), 0
		w.mu.Unlock()
		if c.Err != nil && !errors.Is(c.Err, rdma.ErrClosed) {
			w.peer.mesh.lost(w.peer, c.Err)
		}
		return nil
	}
	w.signs++
	lane := int(c.Imm & immLane >> 24)
	if lane >= len(w.lanes) {
		return &Corrupt{w.peer.Rank, lane, "no such lane"}
	}
	l := w.lanes[lane]
	switch c.Imm & immKind {
	case immData:
		l.arrived++
		return w.credit(l, lane, c.Imm)
	case immCredit:
		return w.credit(l, lane, c.Imm)
	case immNotice:
		w.noticed.Store(true) // the board is read where failures are looked for
	default:
		return &Corrupt{w.peer.Rank, lane, fmt.Sprintf("immediate %#x", c.Imm)}
	}
	return nil
}

// credit takes the peer's counter of consumed messages.
func (w *wire) credit(l *wireLane, lane int, imm uint32) error {
	step := (imm - l.consumed) & immValue
	if step > l.sent-l.consumed {
		return &Corrupt{w.peer.Rank, lane, fmt.Sprintf("credit for %d messages of %d", step, l.sent-l.consumed)}
	}
	l.consumed += step
	return nil
}

// wireSender stages messages; the slot of the staging ring is free again when the peer has
// consumed the message, which implies that the write is over.
type wireSender struct {
	wire    *wire
	lane    int
	l       *wireLane
	headers []*header
	slots   [][]byte
	room    int
}

func (s *wireSender) full() bool { return s.l.sent-s.l.consumed >= uint32(len(s.slots)) }

func (s *wireSender) Reserve(max int) ([]byte, bool) {
	if s.full() {
		s.wire.peer.awaited()
		return nil, false
	}
	slot := s.l.sent % uint32(len(s.slots))
	if max <= InlineBytes {
		s.room = max
		return s.headers[slot].bytes()[:max:max], true
	}
	b := s.slots[slot][lineBytes:]
	if max < len(b) {
		b = b[:max:max]
	}
	s.room = len(b)
	return b, true
}

func (s *wireSender) Commit(n int, c *Call) {
	if s.room <= InlineBytes {
		s.publish(n, inLine, lineBytes, c)
	} else {
		s.headers[s.l.sent%uint32(len(s.slots))].inline[0] = 0
		s.publish(n, inSlot, lineBytes+n, c)
	}
}

func (s *wireSender) Put(src []byte, c *Call) bool { return put(s, src, c) }

// put is Sender.Put in steps.
func put(s Sender, src []byte, c *Call) bool {
	b, ok := s.Reserve(len(src))
	if ok {
		s.Commit(copy(b, src), c)
	}
	return ok
}

// CommitFrom posts the bytes from where they are, then the slot's header.
func (s *wireSender) CommitFrom(src []byte, c *Call) {
	slot := int(s.l.sent) & (len(s.slots) - 1)
	p := s.wire.peer
	s.headers[slot].inline[0] = 0
	s.publish(len(src), inSlot, lineBytes, c, rdma.Write{
		Local: src, Remote: p.remote, Offset: p.base + uint64(p.mesh.geo.slotOffset(s.lane, slot)+lineBytes),
	})
}

// publish posts the first bytes of the slot, after what else belongs to the message.
func (s *wireSender) publish(n int, k kind, bytes int, c *Call, before ...rdma.Write) {
	slot := int(s.l.sent) & (len(s.slots) - 1)
	h := s.headers[slot]
	h.call = *c
	h.pub.Store(publication(s.l.sent, 0, n, k))
	s.l.sent++
	s.l.credited = s.l.taken
	p := s.wire.peer
	s.wire.post(rdma.Write{
		Local: s.slots[slot][:bytes], Region: s.wire.staging, Remote: p.remote,
		Offset: p.base + uint64(p.mesh.geo.slotOffset(s.lane, slot)), Imm: immData | uint32(s.lane)<<24 | s.l.taken&immValue, HasImm: true,
	}, before...)
}

func (s *wireSender) Lend(_, _ Place, _ int, _ *Call) bool { return false }

func (s *wireSender) Placed(int, *Call) bool { return false }

func (s *wireSender) Drained() bool { return true }

type wireReceiver struct {
	wire     *wire
	lane     int
	l        *wireLane
	headers  []*header
	payloads [][]byte
	expected expected
	inbox
}

func (r *wireReceiver) Peek(c *Call) (*Message, error) {
	if r.open {
		return &r.cur, nil
	}
	p := r.wire.peer
	if r.stash.kept != nil {
		return r.unstash(p.Rank, c)
	}
	m, call, err := r.oldest()
	if call == nil {
		return nil, err
	}
	if call.FP != c.FP {
		return nil, &Mismatch{Peer: p.Rank, Mine: *c, Theirs: *call}
	}
	r.cur, r.open = m, true
	return &r.cur, nil
}

// Take leaves everything to Peek.
func (r *wireReceiver) Take([]byte, *Call) Took { return Other }

// oldest parses the oldest message that has arrived; call is nil if none has.
func (r *wireReceiver) oldest() (m Message, call *Call, err error) {
	if r.l.arrived == r.l.taken {
		r.wire.peer.awaited()
		return m, nil, nil
	}
	slot := r.l.taken % uint32(len(r.headers))
	h := r.headers[slot]
	v := h.pub.Load()
	p := r.wire.peer
	if _, k := parsePublication(v); !published(v, r.l.taken) || k > inSlot {
		return m, nil, &Corrupt{p.Rank, r.lane, fmt.Sprintf("publication %#x in the place of message %d", v, r.l.taken+1)}
	}
	if err = p.parse(&m, h, v, r.payloads[slot], r.lane); err != nil {
		return m, nil, err
	}
	if m.Len > InlineBytes {
		if m.Data, err = r.place(r.l.taken, r.payloads[slot], m.Len); err != nil {
			return m, nil, err
		}
	}
	return m, &h.call, nil
}

func (r *wireReceiver) Look() (c Call, ok bool) {
	if c, ok, known := r.look(); known {
		return c, ok
	}
	_, call, _ := r.oldest()
	if call == nil {
		return c, false
	}
	return *call, true
}

func (r *wireReceiver) Advance(n int) {
	if r.advance(n) {
		r.free()
	}
}

// free takes the oldest message. Its slot returns to the peer with the next message on the lane, or by
// a write of its own when many are due.
func (r *wireReceiver) free() {
	l := r.l
	r.expected.end(l.taken)
	l.taken++
	r.ask()
	if l.taken-l.credited >= uint32(r.wire.peer.mesh.geo.batch()) {
		l.credited = l.taken
		r.wire.post(rdma.Write{Remote: r.wire.peer.remote, Offset: r.wire.peer.base,
			Imm: immCredit | uint32(r.lane)<<24 | l.taken&immValue, HasImm: true})
	}
}

func (r *wireReceiver) Stash(limit int) (bytes, messages int, err error) {
	for !r.open && bytes < limit {
		m, call, err := r.oldest()
		if call == nil {
			return bytes, messages, err
		}
		r.stash.put(*call, m)
		bytes, messages = bytes+m.Len, messages+1
		r.free()
	}
	return bytes, messages, nil
}

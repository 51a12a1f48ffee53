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
	immGrant  // the next line of grants has been written
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
	lent    uint64      // the last one's behind which bytes of the caller's registered memory are not sent
	lending atomic.Bool // it may not be complete
	torn    atomic.Bool // nor will be: posting failed, and the endpoint may yet send those bytes
	auto    bool        // they go on by themselves
	early   bool        // memory shows them as they land (seal)
	inline  int         // bytes up to which the device takes them at once
	most    int         // longest message that is placed
	beats   int         // signs of life posted since the last completion
	lanes   []*wireLane

	placed uint64 // messages sent to where they were granted; the goroutine's that sends
	signs  uint64 // messages, credits and notices received; like the lanes, the polling goroutine's
}

// wireLane is both halves of a lane. Message i takes entry i mod E and, if its payload is not short, slot i mod S, so that
// a receiver can tell beforehand where one that is to come lands.
type wireLane struct {
	sent, consumed uint32            // sending: next sequence number, peer's credit
	grants         uint32            // sending: grants that have arrived
	granted        [grantLines]grant // sending: the latest
	busy           []bool            // sending: slots whose message the peer has not consumed, as far as known
	paid           []bool            // sending: per entry, whether its message took a slot
	arrived        uint32            // receiving: messages whose write has completed
	taken          uint32            // receiving: messages consumed, up to aheadMost more than have arrived
	credited       uint32            // receiving: messages whose credit was returned
	owing          bool              // receiving: a message consumed since then had a slot
}

// immediate is that of a write, which returns the credit for all that has been consumed.
func (l *wireLane) immediate(kind uint32, lane int) uint32 {
	l.credited, l.owing = l.taken, false
	return kind | uint32(lane)<<24 | l.taken&immValue
}

func (p *Peer) connectWire() error {
	g := posted{p.mesh.geo}
	st, err := p.mesh.alloc(p.port.dev, p.port.section, fmt.Sprintf("staging for rank %d", p.Rank))
	if err != nil {
		return fmt.Errorf("staging memory for rank %d: %w", p.Rank, err)
	}
	p.visit(st.Bytes())
	p.visit(p.section)
	attr := p.port.dev.Attr()
	w := &wire{peer: p, staging: st, auto: attr.Autonomous, early: attr.Early, inline: attr.MaxInline, most: min(attr.MaxMessage&^63, placedMost)}
	p.mesh.life.Lock() // a provider may be telling of a loss
	p.wire = w
	p.mesh.life.Unlock()
	if _, keeps := p.endpoint.(rdma.Keeper); keeps {
		p.direct = attr.AnyLocal
	}
	p.watch.word = wordAt(p.section)
	base := p.port.sectionOffset(slices.Index(p.port.peers, p))
	for lane := range g.Lanes {
		l := &wireLane{busy: make([]bool, g.Slots), paid: make([]bool, g.headers())}
		w.lanes = append(w.lanes, l)
		s := &wireSender{wire: w, lane: lane, l: l, geo: g}
		s.one[0] = s.line()
		r := &wireReceiver{wire: w, lane: lane, l: l, geo: g, batch: uint32(g.batch()), lag: uint32(g.lag())}
		r.expected.arena, _ = p.port.arena.(rdma.Redirector)
		for i := range g.headers() {
			off := g.entryOffset(lane, i)
			s.offsets = append(s.offsets, p.base+uint64(off))
			s.entries, r.entries = append(s.entries, st.Bytes()[off:][:g.entryBytes()]), append(r.entries, p.section[off:][:g.entryBytes()])
			s.headers, r.headers = append(s.headers, headerAt(s.entries[i])), append(r.headers, headerAt(r.entries[i]))
		}
		for i := range g.Slots {
			off := g.slotOffset(lane, i)
			s.slots, r.slots = append(s.slots, st.Bytes()[off:][:g.roomBytes()]), append(r.slots, p.section[off:][:g.roomBytes()])
			r.expected.slots = append(r.expected.slots, landing{offset: base + off, got: -1})
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
	if wr.Signaled { // somebody waits for it
		w.lent = w.posted
		w.lending.Store(true)
	}
	wr.Signaled = w.signals(wr.Signaled || wr.Imm == immNotice)
	if n := len(wr.Local); n > 0 && n <= w.inline {
		wr.Inline, wr.Region = true, nil
	}
	w.backlog = append(w.backlog, wr)
	w.flush()
}

// signals reports whether the latest write asks for a completion.
func (w *wire) signals(must bool) bool {
	if w.auto && w.posted-w.asked < signalEvery && !must {
		return false
	}
	w.asked = w.posted
	return true
}

func (w *wire) flush() {
	if len(w.backlog) > 0 {
		n, err := w.peer.endpoint.Post(w.backlog)
		w.handed(n, err)
	}
}

// handed takes out of the backlog what the endpoint has taken.
func (w *wire) handed(n int, err error) {
	if err != nil {
		if w.done < w.lent {
			w.torn.Store(true)
		}
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

// leftAlone reports whether all that was posted goes on by itself, from memory of the link's own.
func (w *wire) leftAlone() bool {
	return w.auto && !w.peer.direct && !w.behind.Load() && !w.lending.Load()
}

func (w *wire) drained() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done < w.lent || w.torn.Load() {
		return false
	}
	w.lending.Store(false)
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
		if c.Err == nil && c.ID >= w.lent {
			w.torn.Store(false) // all that was lent had been sent by then
		}
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
	case immGrant:
		if err := w.takeGrant(l, lane); err != nil {
			return err
		}
		return w.credit(l, lane, c.Imm)
	default:
		w.noticed.Store(true) // the board is read where failures are looked for
	}
	return nil
}

// credit takes the peer's counter of consumed messages.
func (w *wire) credit(l *wireLane, lane int, imm uint32) error {
	step := (imm - l.consumed) & immValue
	if step > l.sent-l.consumed {
		return &Corrupt{w.peer.Rank, lane, fmt.Sprintf("credit for %d messages of %d", step, l.sent-l.consumed)}
	}
	for ; step > 0; step-- {
		if l.paid[l.consumed%uint32(len(l.paid))] {
			l.busy[l.consumed%uint32(len(l.busy))] = false
		}
		l.consumed++
	}
	return nil
}

// wireSender stages messages; the entry and the slot of the staging ring are free again when the peer has
// consumed the message, which implies that the writes are over.
type wireSender struct {
	wire    *wire
	lane    int
	l       *wireLane
	geo     posted
	entries [][]byte
	headers []*header
	slots   [][]byte
	room    []byte        // reserved
	from    rdma.Region   // where what is reserved by ReserveFrom is registered; nil: in none
	offsets []uint64      // of the entries in the peer's arena
	one     [1]rdma.Write // of Put
	transfer
}

func (s *wireSender) entry() int { return int(s.l.sent) & (len(s.entries) - 1) }
func (s *wireSender) slot() int  { return int(s.l.sent) & (len(s.slots) - 1) }

func (s *wireSender) noEntry() bool { return s.l.sent-s.l.consumed >= uint32(len(s.entries)) }

// short reports whether the reserved payload goes behind its header.
func (s *wireSender) short() bool { return len(s.room) <= s.geo.shortBytes() }

func (s *wireSender) Reserve(max int) ([]byte, bool) {
	short := min(max, s.geo.roomBytes()) <= s.geo.shortBytes()
	if s.noEntry() || !short && s.l.busy[s.slot()] {
		s.wire.peer.awaited()
		return nil, false
	}
	var b []byte
	switch {
	case max <= InlineBytes:
		b = s.headers[s.entry()].bytes()
	case short:
		b = s.entries[s.entry()][lineBytes:]
	default:
		b = s.slots[s.slot()]
	}
	if max < len(b) {
		b = b[:max:max]
	}
	s.room = b
	return b, true
}

func (s *wireSender) Commit(n int, c *Call) {
	switch {
	case len(s.room) <= InlineBytes:
		s.publish(n, inLine, lineBytes, c)
	case s.short():
		s.headers[s.entry()].inline = [4]uint64{0, behindHeader}
		s.publish(n, inSlot, lineBytes+n, c)
	default:
		s.pay(rdma.Write{Local: s.slots[s.slot()][:n], Region: s.wire.staging}, n, true, c)
	}
}

// put is Sender.Put in steps.
func put(s Sender, src []byte, c *Call) bool {
	b, ok := s.Reserve(len(src))
	if ok {
		s.Commit(copy(b, src), c)
	}
	return ok
}

// publish posts the first bytes of the entry, after what else belongs to the message.
func (s *wireSender) publish(n int, k kind, bytes int, c *Call, before ...rdma.Write) {
	at, p := s.entry(), s.wire.peer
	h := s.headers[at]
	v := publication(s.l.sent, 0, n, k)
	h.call = *c
	if sealed(n, k) {
		h.inline[3] = h.seal(v)
	}
	h.pub.Store(v)
	s.l.paid[at] = len(before) > 0 && h.inline[1] == inOwnSlot
	s.l.sent++
	if s.done < s.size {
		s.done += n
	}
	s.wire.post(rdma.Write{
		Local: s.entries[at][:bytes], Region: s.wire.staging, Remote: p.remote,
		Offset: s.offsets[at], Imm: s.l.immediate(immData, s.lane), HasImm: true,
		Signaled: len(before) > 0 && before[0].Region != nil && before[0].Region != s.wire.staging, // who lent the bytes waits for it
	}, before...)
}

func (s *wireSender) Drained() bool { return true }

type wireReceiver struct {
	wire     *wire
	lane     int
	l        *wireLane
	geo      posted
	batch    uint32 // messages consumed that make a credit due if one had a slot
	lag      uint32 // messages that do in any case
	entries  [][]byte
	headers  []*header
	slots    [][]byte
	expected expected
	granting
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

func (r *wireReceiver) oldest() (m Message, call *Call, err error) {
	if !r.here() {
		r.wire.peer.awaited()
		return m, nil, nil
	}
	at := r.l.taken % uint32(len(r.headers))
	h := r.headers[at]
	v := h.pub.Load()
	p := r.wire.peer
	if n, k := parsePublication(v); !published(v, r.l.taken) || k > inSlot && !r.mayPlace(h, n, k) {
		return m, nil, &Corrupt{p.Rank, r.lane, fmt.Sprintf("publication %#x in the place of message %d", v, r.l.taken+1)}
	}
	payload, paid := r.entries[at][lineBytes:], r.paid(h, v)
	if paid {
		payload = r.slots[r.l.taken%uint32(len(r.slots))]
	}
	if err = p.parse(&m, h, v, payload, r.lane); err != nil {
		return m, nil, err
	}
	if paid && !m.Placed {
		if m.Data, err = r.place(r.l.taken, payload, m.Len); err != nil {
			return m, nil, err
		}
	}
	return m, &h.call, nil
}

// paid reports whether a message has a slot.
func (r *wireReceiver) paid(h *header, v uint64) bool {
	_, k := parsePublication(v)
	return (k == inSlot || k == placedK) && h.inline[1] == inOwnSlot
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

func (r *wireReceiver) free() {
	l := r.l
	h := r.headers[l.taken%uint32(len(r.headers))]
	v := h.pub.Load()
	l.owing = l.owing || r.paid(h, v)
	r.passed(h, v)
	r.expected.end(l.taken)
	l.taken++
	r.ask()
	r.giveBack()
}

// giveBack returns entries and slots to the peer: with the next message on the lane or, when many are due, by a write
// of its own.
func (r *wireReceiver) giveBack() {
	l := r.l
	if due := l.taken - l.credited; due >= r.lag || l.owing && due >= r.batch {
		r.wire.post(rdma.Write{Remote: r.wire.peer.remote, Offset: r.wire.peer.base, Imm: l.immediate(immCredit, r.lane), HasImm: true})
	}
}

func (r *wireReceiver) Stash(limit int) (bytes, messages int, err error) { return r.keep(r, limit) }

package link

import (
	"fmt"
	"sync/atomic"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/rdma"
)

// memSender writes straight into the ring of a peer whose memory is mapped. Over mapped memory a ring has
// more headers than payload slots, and slots are taken in turn by the messages that need one: what fits
// into headers, and the names of lent spans, runs further ahead.
type memSender struct {
	peer     *Peer
	ep       rdma.LoadStore
	lazy     bool // rdma.Attr.LazySignal
	headers  []*header
	lines    []*atomic.Uint64 // the headers' first words: given to prefetches, which a field's address would precede by a load
	payloads [][]byte
	credit   *atomic.Uint64 // in this rank's arena: messages that the peer has consumed
	mask     uint32         // of headers
	slots    uint32         // mask of payload slots
	next     uint32         // sequence number of the next message
	consumed uint32         // latest known credit
	paid     uint32         // slots that have been closed: no more messages go there in this lap
	marks    []uint32       // per header, paid after its message
	freed    uint32         // slots whose messages have been consumed, as far as known
	open     openSlot       // slot paid, if short messages lie in it
	opened   uint32         // sequence number of the latest of them
	back     *memReceiver   // of the other direction
	lending  bool           // a lent message may not have been consumed
	lentTo   uint32         // then: one past the latest
	fetched  uint32         // the lines of messages before this one have been fetched for writing
	brief    int            // length of the latest message, if it had a payload
	ahead    uint32         // lines of its header
	spread   int            // longest message that goes into headers
	room     int            // bytes of the current reservation
	at       int            // its offset in the slot
	spots    []int          // per slot, where the next long message goes

	near [SpreadBytes]byte // the reservation of a message for several headers
}

// spotMin is the shortest message that does not always go to the start of its slot. Messages that are
// shorter than a slot move through it, because copying into lines that the peer has just read is
// several times slower than into others; for very short ones the hot lines are better.
const spotMin = 8 << 10

func (s *memSender) full() bool {
	if s.next-s.consumed <= s.mask {
		return false
	}
	s.refresh()
	return s.next-s.consumed > s.mask
}

// refresh looks where credit may have come: in the credit word, and in every message that the peer has
// published, taken in already or not. Messages bring most of it; the word is for a peer that has none to send.
func (s *memSender) refresh() {
	if more := uint32(s.credit.Load()) - s.consumed; more <= s.next-s.consumed {
		s.advance(more)
	}
	r := s.back
	for {
		v := r.headers[r.looked&r.mask].pub.Load()
		if !published(v, r.looked) {
			return
		}
		r.brings(r.looked, v)
	}
}

// takeCredit takes the credit in a publication word. It may be older than what is known, and a wrong one
// harms nobody but its sender.
func (s *memSender) takeCredit(v uint64) {
	if more := uint32(creditOf(v) - uint16(s.consumed)); more <= s.next-s.consumed {
		s.advance(more)
	}
}

func (s *memSender) advance(more uint32) {
	if more > 0 {
		s.consumed += more
		s.freed = s.marks[(s.consumed-1)&s.mask]
	}
}

// noSlot reports that every payload slot is in use.
func (s *memSender) noSlot() bool {
	if s.paid-s.freed <= s.slots {
		return false
	}
	s.refresh()
	return s.paid-s.freed > s.slots
}

func (s *memSender) Reserve(max int) ([]byte, bool) {
	if s.full() {
		return nil, false
	}
	if max <= InlineBytes {
		s.room = max
		return s.headers[s.next&s.mask].bytes()[:max:max], true
	}
	if max <= s.spread {
		if s.short(uint32(headerLines(max))) {
			return nil, false
		}
		s.room = max
		return s.near[:max:max], true
	}
	if s.open.taken > 0 && !s.joins(max) {
		s.close()
	}
	if s.open.taken == 0 && s.noSlot() {
		return nil, false
	}
	slot := s.paid & s.slots
	b := s.payloads[slot]
	s.at = s.open.taken
	if max < len(b) {
		if s.open.taken == 0 && max >= spotMin {
			if s.at = s.spots[slot]; s.at+max > len(b) {
				s.at = 0
			}
		}
		b = b[s.at : s.at+max : s.at+max]
	}
	s.room = len(b)
	if max <= BriefBytes && s.leads() {
		cpu.PrefetchWriteAll(b)
	}
	return b, true
}

func (s *memSender) Commit(n int, c *Call) {
	if s.room <= InlineBytes {
		s.publish(n, inLine, c)
		return
	}
	if s.room <= s.spread {
		s.publishSpread(s.near[:n], c)
		return
	}
	slot := s.paid & s.slots
	s.headers[s.next&s.mask].inline[0] = uint64(slot)*uint64(len(s.payloads[slot])) + uint64(s.at)
	s.open.add(s.at, s.room)
	s.spots[slot], s.opened = s.open.taken, s.next
	if s.room > shareMost {
		s.close()
	}
	s.publish(n, inSlot, c)
	s.brief = n
}

func (s *memSender) publish(n int, k kind, c *Call) {
	h := s.headers[s.next&s.mask]
	h.call.Set(c)
	store(&h.pub, publication(s.next, s.back.next, n, k), s.lazy)
	s.back.credited, s.back.owed = s.back.next, 0
	s.marks[s.next&s.mask] = s.paid
	s.next++
	s.brief, s.ahead = 0, 1
	s.fetch()
	s.ep.Signal()
}

// writeAhead is how many lines are fetched beyond that of the next message for a sender that runs ahead of its
// peer, whose stores else fill the processor's buffer while each waits for its line (measured between far cores,
// Broadcast of 8 bytes: 88 ns a call for 140 with none, and 150 with 4).
const (
	writeAhead = 2
	runsAhead  = 3 // messages not known to be consumed
)

// fetch fetches the lines of messages to come that the peer has read, for writing: the next call of a sender that runs
// ahead finds them here. One that waits for answers leaves its next line until the answer is there (ready).
func (s *memSender) fetch() {
	if s.next-s.consumed < runsAhead*s.ahead {
		return
	}
	if int32(s.fetched-s.next) < 0 {
		s.fetched = s.next
	}
	end := s.next + s.ahead + writeAhead
	for range s.ahead + 1 {
		if int32(end-s.fetched) <= 0 || s.fetched-s.consumed > s.mask {
			return
		}
		cpu.PrefetchWrite(s.lines[s.fetched&s.mask])
		s.fetched++
	}
}

// BriefBytes is the longest payload whose lines a sender fetches beforehand.
const BriefBytes = 1 << 10

// ready fetches what the next message will be written to, now that one of the peer's has come: an answer may follow.
// Sooner the peer, which polls there, would take the line back, and the store would wait for a second crossing. The
// message is supposed to be as long as the one before.
func (s *memSender) ready() {
	if int32(s.fetched-s.next) > 0 || s.next-s.consumed > s.mask {
		return
	}
	s.fetched = s.next
	for range s.ahead {
		if s.fetched-s.consumed <= s.mask {
			cpu.PrefetchWrite(s.lines[s.fetched&s.mask])
			s.fetched++
		}
	}
	if s.brief == 0 || s.brief > BriefBytes {
		return
	}
	slot, at := s.paid, s.open.taken
	if at > 0 && !s.joins(s.brief) {
		slot, at = slot+1, 0
	}
	if slot-s.freed <= s.slots {
		cpu.PrefetchWriteAll(s.payloads[slot&s.slots][at:][:s.brief])
	}
}

func (s *memSender) Lend(span, answer Place, n int, c *Call) bool {
	if n > MaxMessage || s.full() {
		return false
	}
	s.lend([4]uint64{span.Window, span.Offset, answer.Window, answer.Offset}, n, c)
	return true
}

// lend sends what inline says of n bytes that stay where they are.
func (s *memSender) lend(inline [4]uint64, n int, c *Call) {
	s.headers[s.next&s.mask].inline = inline
	s.publish(n, lent, c)
	s.lending, s.lentTo = true, s.next
}

// ReserveFrom implements DirectSender.
func (s *memSender) ReserveFrom(src []byte, _ Place, _ *Call) (n int, ok bool) {
	return min(len(src), MaxMessage), !s.full()
}

// CommitFrom lends src to the peer, which reads it in this process's memory.
func (s *memSender) CommitFrom(src []byte, c *Call) {
	s.lend([4]uint64{farWindow, addressOf(src)}, len(src), c)
}

func (s *memSender) Placed(n int, c *Call) bool {
	if n > MaxMessage || s.full() {
		return false
	}
	s.publish(n, placedK, c)
	return true
}

func (s *memSender) Drained() bool {
	// Counted back from next, because sequence numbers wrap: the message is out while the receiver is
	// further behind than it.
	if s.lending && s.next-s.consumed > s.next-s.lentTo {
		s.refresh()
		s.lending = s.next-s.consumed > s.next-s.lentTo
	} else {
		s.lending = false
	}
	return !s.lending
}

// store makes v visible to the peer, after what was stored before.
func store(p *atomic.Uint64, v uint64, lazy bool) {
	if lazy {
		cpu.StoreRelease(p, v)
		return
	}
	p.Store(v)
}

// memReceiver reads the slots in this rank's own arena.
type memReceiver struct {
	peer     *Peer
	lane     int
	ep       rdma.LoadStore
	lazy     bool // rdma.Attr.LazySignal
	headers  []*header
	lines    []*atomic.Uint64 // as memSender's
	payloads []byte
	credit   *atomic.Uint64 // in the peer's arena
	mask     uint32
	next     uint32     // sequence number of the message to consume
	looked   uint32     // that of the first message whose credit has not been taken; not before next
	credited uint32     // the latest credit given, by word or message
	back     *memSender // of the other direction
	batch    uint32     // payloads consumed that make a credit due
	lag      uint32     // messages that do
	owed     uint32     // payloads consumed since the latest credit
	inbox

	near [SpreadBytes]byte // the open message, if it lies in several headers
}

// brings takes the credit that message seq brings when it is first seen. A sender in want of credit looks
// often (refresh), so that it is two rings old at most then; while the message waits to be taken, it may
// become older than 16 bits can tell from credit that is ahead.
func (r *memReceiver) brings(seq uint32, v uint64) {
	if seq == r.looked {
		r.looked += linesOf(parsePublication(v))
		r.back.takeCredit(v)
		r.back.ready()
	}
}

func (r *memReceiver) Peek(c *Call) (*Message, error) {
	if r.open {
		return &r.cur, nil
	}
	if r.stash.kept != nil {
		return r.unstash(r.peer.Rank, c)
	}
	h := r.headers[r.next&r.mask]
	v := h.pub.Load()
	if !published(v, r.next) || !r.whole(v) {
		return nil, nil
	}
	r.brings(r.next, v)
	if h.call.FP != c.FP {
		return nil, &Mismatch{Peer: r.peer.Rank, Mine: *c, Theirs: h.call}
	}
	if err := r.parse(&r.cur, h, v); err != nil {
		return nil, err
	}
	r.open = true
	return &r.cur, nil
}

func (r *memReceiver) oldest() (m Message, call *Call, err error) {
	h := r.headers[r.next&r.mask]
	v := h.pub.Load()
	if !published(v, r.next) || !r.whole(v) {
		return m, nil, nil
	}
	r.brings(r.next, v)
	err = r.parse(&m, h, v)
	return m, &h.call, err
}

func (r *memReceiver) Look() (c Call, ok bool) {
	if c, ok, known := r.look(); known {
		return c, ok
	}
	h := r.headers[r.next&r.mask]
	if !published(h.pub.Load(), r.next) {
		return c, false
	}
	return h.call, true
}

func (r *memReceiver) Advance(n int) {
	if r.advance(n) {
		r.free()
	}
}

// free returns the slot of the message at next.
func (r *memReceiver) free() {
	n, k := parsePublication(r.headers[r.next&r.mask].pub.Load())
	r.pass(k, linesOf(n, k))
}

// wordEvery is how many messages may pass before the credit word is stored although messages bring the
// credit: a word half of all numbers old would look like one ahead (refresh).
const wordEvery = 1 << 20

// readAhead is how many messages before its own turn a header is fetched: of a sender that has run ahead, so
// that one does not pay the way of a cache line for each message.
const readAhead = 6

// pass returns the slot of the message at next, which is of kind k and takes so many headers: some at a time, but that of
// a lent span at once. Of a pool's, too: what its sender lends next may be for others, so that no message follows for
// which credit would be due.
func (r *memReceiver) pass(k kind, lines uint32) {
	last := r.next
	r.next += lines
	cpu.Prefetch(r.lines[(r.next+readAhead)&r.mask])
	if k == inSlot {
		r.owed++
	}
	if k != lent && r.owed < r.batch && r.next-r.credited < r.lag && (r.next^last)&wordEvery == 0 {
		return
	}
	r.credited, r.owed = r.next, 0
	store(r.credit, uint64(r.next), r.lazy)
	r.ep.Signal()
}

func (r *memReceiver) Stash(limit int) (bytes, messages int, err error) { return r.keep(r, limit) }

// parse fills in m from a header whose publication word is v and whose payload lies in that memory.
func (p *Peer) parse(m *Message, h *header, v uint64, payload []byte, lane int) error {
	n, k := parsePublication(v)
	m.Len, m.Placed, m.Lent, m.Far = n, k == placedK, false, false
	if m.Answer != nil {
		m.Answer = nil
	}
	switch k {
	case inLine:
		if n > InlineBytes {
			return &Corrupt{p.Rank, lane, fmt.Sprintf("%d bytes inline", n)}
		}
		m.Data = h.bytes()[:n]
	case inSlot:
		at := h.inline[0] // read once: a peer gone wild can change it any time
		if at > uint64(len(payload)) || n > len(payload)-int(at) {
			return &Corrupt{p.Rank, lane, fmt.Sprintf("%d bytes at %d in a slot of %d", n, at, len(payload))}
		}
		m.Data = payload[at:][:n:n]
	case placedK:
		m.Data = nil
	case lent:
		at := h.inline // read once, too
		if at[0] == farWindow {
			if p.attach == nil {
				return &Corrupt{p.Rank, lane, "bytes in the memory of its process, which is not read"}
			}
			m.Data, m.Lent, m.Far, m.addr = nil, true, true, at[1]
			return nil
		}
		w := p.window(at[0])
		if off := at[1]; off > uint64(len(w)) || uint64(n) > uint64(len(w))-off {
			return &Corrupt{p.Rank, lane, fmt.Sprintf("%d bytes at %d lent of window %d of %d bytes", n, off, at[0], len(w))}
		}
		m.Data, m.Lent = w[at[1]:][:n:n], at[0] != poolWindow
		if at[2] != 0 {
			a := p.window(at[2])
			if off := at[3]; off <= uint64(len(a)) {
				m.Answer = a[off:]
			}
		}
	}
	return nil
}

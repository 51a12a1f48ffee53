package link

// Over mapped memory a message that is a little too long for one header goes on in the headers behind it: each of them
// has a publication word of its own, so that no line waits for the one before it, and 56 bytes. A payload in a slot must be there
// before the header is published: its lines cross one after the other (measured between far cores, one way: 0.52 µs for 64 bytes in a
// slot, 0.38 in two headers).

// SpreadBytes is the longest payload that goes into headers over mapped memory.
const SpreadBytes = InlineBytes + (spreadLines-1)*restBytes

const (
	spreadLines = 3
	restBytes   = lineBytes - 8 // of a header that goes on with a message
)

// headerLines is how many headers hold n bytes.
func headerLines(n int) int {
	if n <= InlineBytes {
		return 1
	}
	return 1 + (n-InlineBytes+restBytes-1)/restBytes
}

// linesOf is how many headers a message of n bytes has.
func linesOf(n int, k kind) uint32 {
	if k != inLine || n <= InlineBytes || n > SpreadBytes {
		return 1
	}
	return uint32(headerLines(n))
}

// spreadMost is the longest message that goes into headers. As many as a sender may count on (Usable) fit into the
// headers whose credit is not held back. It is less than a slot, so that Commit can tell by the length.
func (g Geometry) spreadMost() int {
	lines := min(spreadLines, (g.headers()-g.lag()+1)/g.Usable())
	return max(InlineBytes, min(InlineBytes+(lines-1)*restBytes, g.roomBytes()-lineBytes))
}

// short reports whether fewer headers are free than that.
func (s *memSender) short(lines uint32) bool {
	if s.next+lines-s.consumed <= s.mask+1 {
		return false
	}
	s.refresh()
	return s.next+lines-s.consumed > s.mask+1
}

// publishSpread publishes src in several headers.
func (s *memSender) publishSpread(src []byte, c *Call) {
	h := s.headers[s.next&s.mask]
	h.call.Set(c)
	copy(h.bytes(), src)
	store(&h.pub, publication(s.next, s.back.next, len(src), inLine), s.lazy)
	s.next++
	s.ahead = 1
	for at := InlineBytes; at < len(src); at += restBytes {
		h := s.headers[s.next&s.mask]
		copy(h.rest(), src[at:])
		store(&h.pub, publication(s.next, s.back.next, len(src), inLine), s.lazy)
		s.next++
		s.ahead++
	}
	s.back.credited, s.back.owed = s.back.next, 0
	s.marks[(s.next-1)&s.mask] = s.paid
	s.brief = 0
	s.fetch()
	s.ep.Signal()
}

// whole reports whether the rest of the message at next is there, whose first publication word is v.
func (r *memReceiver) whole(v uint64) bool {
	n, k := parsePublication(v)
	if k != inLine || n <= InlineBytes {
		return true
	}
	for i := uint32(1); i < linesOf(n, k); i++ {
		if !published(r.headers[(r.next+i)&r.mask].pub.Load(), r.next+i) {
			return false
		}
	}
	return true
}

// parse fills in m from the message at next, which is whole, with the header h and its publication word v.
func (r *memReceiver) parse(m *Message, h *header, v uint64) error {
	n, k := parsePublication(v)
	if k != inLine || n <= InlineBytes || n > SpreadBytes {
		return r.peer.parse(m, h, v, r.payloads, r.lane)
	}
	r.unspread(r.near[:n], h)
	*m = Message{Data: r.near[:n:n], Len: n}
	return nil
}

// unspread copies the message at next, whose header h is, to dst, which is as long.
func (r *memReceiver) unspread(dst []byte, h *header) {
	copy(dst, h.bytes())
	for i, at := uint32(1), InlineBytes; at < len(dst); i, at = i+1, at+restBytes {
		copy(dst[at:], r.headers[(r.next+i)&r.mask].rest())
	}
}

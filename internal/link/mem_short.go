package link

import "encoding/binary"

// Put stores all of the line at once: a peer that polls it takes it away between two stores else, and it has
// to come back.
func (s *memSender) Put(src []byte, c *Call) bool {
	switch n := len(src); {
	case n <= InlineBytes:
	case n > s.spread:
		return put(s, src, c)
	case s.short(uint32(headerLines(n))):
		return false
	default:
		s.publishSpread(src, c)
		return true
	}
	if s.full() {
		return false
	}
	h := s.headers[s.next&s.mask]
	if len(src) == 8 {
		h.inline[0] = binary.NativeEndian.Uint64(src)
	} else {
		copy(h.bytes(), src)
	}
	s.publish(len(src), inLine, c)
	return true
}

func (r *memReceiver) Take(dst []byte, c *Call) Took {
	if r.open || r.stash.kept != nil {
		return Other
	}
	h := r.headers[r.next&r.mask]
	v := h.pub.Load()
	if !published(v, r.next) {
		return Nothing
	}
	n, k := parsePublication(v)
	if n != len(dst) || h.call.FP != c.FP {
		return Other
	}
	switch {
	case k == inSlot:
		at := h.inline[0] // read once
		if at > uint64(len(r.payloads)) || n > len(r.payloads)-int(at) {
			return Other // Peek's error
		}
		r.brings(r.next, v)
		copy(dst, r.payloads[at:])
	case k != inLine || n > SpreadBytes:
		return Other
	case n == 8:
		r.brings(r.next, v)
		binary.NativeEndian.PutUint64(dst, h.inline[0])
	case n <= InlineBytes:
		r.brings(r.next, v)
		copy(dst, h.bytes())
	default:
		if !r.whole(v) {
			return Nothing
		}
		r.brings(r.next, v)
		r.unspread(dst, h)
	}
	r.pass(k, linesOf(n, k))
	return Taken
}

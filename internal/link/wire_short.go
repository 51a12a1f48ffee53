package link

import (
	"encoding/binary"

	"github.com/gccl/gccl/rdma"
)

// What Put and Take do at once instead of in the steps of Reserve and Commit, Peek and Advance: messages that lie
// in one line, one write each, which are most of what short calls send.

// line is the write of such a message, with all that is the same for each.
func (s *wireSender) line() rdma.Write {
	w := rdma.Write{Region: s.wire.staging, Remote: s.wire.peer.remote, HasImm: true}
	if lineBytes <= s.wire.inline {
		w.Inline, w.Region = true, nil
	}
	return w
}

// Put implements Sender.
func (s *wireSender) Put(src []byte, c *Call) bool {
	l := s.l
	if s.noEntry() {
		s.wire.peer.awaited()
		return false
	}
	at := s.entry()
	h := s.headers[at]
	h.call = *c
	if len(src) == 8 {
		h.inline[0] = binary.NativeEndian.Uint64(src)
	} else {
		copy(h.bytes(), src)
	}
	v := publication(l.sent, 0, len(src), inLine)
	if len(src) <= SealedBytes {
		h.inline[3] = h.seal(v)
	}
	h.pub.Store(v)
	l.paid[at] = false
	l.sent++
	w := &s.one[0]
	w.Local, w.Offset = s.entries[at][:lineBytes], s.offsets[at]
	w.Imm = l.immediate(immData, s.lane)
	s.wire.postOne(s.one[:])
	return true
}

// postOne is post of a write whose ID and signal are not set, without its way by the backlog.
func (w *wire) postOne(one []rdma.Write) {
	w.mu.Lock()
	w.posted++
	w.needed = w.posted
	wr := &one[0]
	wr.ID, wr.Signaled = w.posted, w.signals(false)
	if len(w.backlog) > 0 {
		w.backlog = append(w.backlog, *wr)
		w.flush()
	} else if n, err := w.peer.endpoint.Post(one); n == 0 || err != nil {
		w.backlog = append(w.backlog, *wr)
		w.handed(n, err)
	}
	w.mu.Unlock()
}

// Take implements Receiver.
func (r *wireReceiver) Take(dst []byte, c *Call) Took {
	l := r.l
	if r.open || r.stash.kept != nil {
		return Other
	}
	if !r.here() {
		r.wire.peer.awaited()
		return Nothing
	}
	h := r.headers[l.taken&uint32(len(r.headers)-1)]
	v := h.pub.Load()
	if n, k := parsePublication(v); !published(v, l.taken) || k != inLine || n != len(dst) || n > InlineBytes || h.call.FP != c.FP {
		return Other // or Peek's error
	}
	if len(dst) == 8 {
		binary.NativeEndian.PutUint64(dst, h.inline[0])
	} else {
		copy(dst, h.bytes())
	}
	if r.expected.arena != nil {
		r.free()
		return Taken
	}
	l.taken++
	r.giveBack()
	return Taken
}

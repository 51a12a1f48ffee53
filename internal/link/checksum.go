package link

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// With Geometry.Checksum every message ends with a sum of itself and of the call that it belongs to, which
// the sender computes over what it has put into the slot and the receiver over what it takes out of it: so
// whatever is on the way (memory, bus, card, network, kernel) is covered, by whatever provider. A word of
// sumBytes follows the payload: CRC-32C (the processor's own instruction) in the low half, the length in
// the high one. Spans are not lent, placed or posted from where they are: only what is copied is summed.

const sumBytes = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summer computes sums.
type summer struct{ call [24]byte }

func (s *summer) sum(c *Call, data []byte) uint64 {
	binary.LittleEndian.PutUint64(s.call[0:], c.FP)
	binary.LittleEndian.PutUint64(s.call[8:], c.A)
	binary.LittleEndian.PutUint64(s.call[16:], c.B)
	crc := crc32.Update(crc32.Checksum(s.call[:], castagnoli), castagnoli, data)
	return uint64(crc) | uint64(len(data))<<32
}

// checkedSender appends sums.
type checkedSender struct {
	Sender
	summer
	most int    // Geometry.SlotBytes
	room []byte // the reservation, with room for the sum
}

func (s *checkedSender) Reserve(max int) ([]byte, bool) {
	b, ok := s.Sender.Reserve(min(max, s.most) + sumBytes)
	if !ok {
		return nil, false
	}
	s.room = b
	return b[: len(b)-sumBytes : len(b)-sumBytes], true
}

func (s *checkedSender) Commit(n int, c *Call) {
	binary.LittleEndian.PutUint64(s.room[n:n+sumBytes], s.sum(c, s.room[:n]))
	s.Sender.Commit(n+sumBytes, c)
}

func (s *checkedSender) Put(src []byte, c *Call) bool { return put(s, src, c) }

// checkedReceiver takes sums off and holds them against the messages.
type checkedReceiver struct {
	rawReceiver
	summer
	peer *Peer
	lane int
	open bool
	cur  Message
	got  uint64 // messages taken
	seen uint64 // the number of the message that Look has checked
}

// Peek checks the sum before anything else, so that a damaged header is not taken for another call's.
func (r *checkedReceiver) Peek(c *Call) (*Message, error) {
	if r.open {
		return &r.cur, nil
	}
	if r.Stashed() == 0 {
		m, call, err := r.oldest()
		if call == nil || err != nil {
			return nil, err
		}
		if err := r.check(&m, call); err != nil {
			return nil, err
		}
	}
	m, err := r.rawReceiver.Peek(c)
	if m == nil {
		return nil, err
	}
	if len(m.Data) < sumBytes { // it was there when the sum was checked
		return nil, &Corrupt{r.peer.Rank, r.lane, fmt.Sprintf("message %d changed while it was read", r.got+1)}
	}
	n := m.Len - sumBytes
	r.cur, r.open = Message{Data: m.Data[:n:n], Len: n}, true
	return &r.cur, nil
}

// Take leaves everything to Peek.
func (r *checkedReceiver) Take([]byte, *Call) Took { return Other }

// Look shows no message that is damaged: its header may say anything. Peek, or Stash, will say so.
func (r *checkedReceiver) Look() (c Call, ok bool) {
	if !r.open && r.Stashed() == 0 && r.seen != r.got+1 {
		m, call, err := r.oldest()
		if call == nil || err != nil || r.check(&m, call) != nil {
			return c, false
		}
		r.seen = r.got + 1
	}
	return r.rawReceiver.Look()
}

func (r *checkedReceiver) check(m *Message, c *Call) error {
	n := len(m.Data) - sumBytes
	if n < 0 {
		return &Corrupt{r.peer.Rank, r.lane, fmt.Sprintf("message %d of %d bytes has no checksum", r.got+1, m.Len)}
	}
	sent, here := binary.LittleEndian.Uint64(m.Data[n:]), r.sum(c, m.Data[:n])
	if sent != here {
		return &Corrupt{r.peer.Rank, r.lane, fmt.Sprintf("checksum %#016x of message %d, computed %#016x over %d bytes", sent, r.got+1, here, n)}
	}
	return nil
}

func (r *checkedReceiver) Advance(n int) {
	r.cur.Len -= n
	r.cur.Data = r.cur.Data[n:]
	if r.cur.Len > 0 {
		r.rawReceiver.Advance(n)
		return
	}
	r.open = false
	r.got++
	r.rawReceiver.Advance(n + sumBytes)
}

// Stash checks what it keeps: each message once.
func (r *checkedReceiver) Stash(limit int) (bytes, messages int, err error) {
	for !r.open && bytes < limit {
		m, call, err := r.oldest()
		if call == nil || err != nil {
			return bytes, messages, err
		}
		if err := r.check(&m, call); err != nil {
			return bytes, messages, err
		}
		n, k, err := r.rawReceiver.Stash(1) // one message, however long
		if bytes, messages = bytes+n, messages+k; k == 0 || err != nil {
			return bytes, messages, err
		}
	}
	return bytes, messages, nil
}

// checked puts sums on the links of a peer.
func (p *Peer) checked() {
	for lane := range p.senders {
		p.senders[lane] = &checkedSender{Sender: p.senders[lane], most: p.mesh.geo.SlotBytes}
		p.receives[lane] = &checkedReceiver{rawReceiver: p.receives[lane].(rawReceiver), peer: p, lane: lane}
	}
}

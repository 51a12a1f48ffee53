package link

import "slices"

// stash keeps copies of messages that nobody asked for yet, so that their slots are free for the
// sender: what lets two ranks that both send first get on.
type stash struct {
	kept  []kept
	bytes int
}

type kept struct {
	call Call
	msg  Message
}

// keptCost is what a message is charged beside its bytes: its place in the list, which append makes twice as long as it
// must be, and the header of its memory.
const keptCost = 192

// charge is what a message counts as.
func (k *kept) charge() int { return len(k.msg.Data) + keptCost }

// put copies a message, and returns its charge.
func (s *stash) put(c Call, m Message, data []byte) int {
	m.Data = data
	m.Answer, m.Far = nil, false
	k := kept{c, m}
	s.kept = append(s.kept, k)
	s.bytes += k.charge()
	return k.charge()
}

// drop forgets the oldest message.
func (s *stash) drop() {
	s.bytes -= s.kept[0].charge()
	s.kept[0] = kept{}
	if s.kept = s.kept[1:]; len(s.kept) == 0 {
		s.kept = nil
	}
}

// inbox is what both kinds of receivers keep: the message that is being taken, and the stash that
// comes before what is in the slots.
type inbox struct {
	open    bool // cur has been parsed and is not used up
	stashed bool // cur is the first of the stash, not the one in the next slot
	cur     Message
	stash   stash
}

// look answers Receiver.Look where a message is open or stashed; known is false otherwise.
func (b *inbox) look() (c Call, ok, known bool) {
	if !b.open && b.stash.kept != nil {
		return b.stash.kept[0].call, true, true
	}
	return c, false, b.open
}

// unstash opens the first message of the stash, which is not empty.
func (b *inbox) unstash(peer int, c *Call) (*Message, error) {
	k := &b.stash.kept[0]
	if k.call.FP != c.FP {
		return nil, &Mismatch{Peer: peer, Mine: *c, Theirs: k.call}
	}
	b.cur, b.open, b.stashed = k.msg, true, true
	return &b.cur, nil
}

// advance consumes n bytes of the open message and reports whether that used up the one in the next slot.
func (b *inbox) advance(n int) (free bool) {
	b.cur.Len -= n
	if b.cur.Data != nil {
		b.cur.Data = b.cur.Data[n:]
	}
	b.cur.addr += uint64(n)
	if b.cur.Len > 0 {
		return false
	}
	b.open = false
	if b.stashed {
		b.stashed = false
		b.stash.drop()
		return false
	}
	return true
}

// rawReceiver is a receiver that shows its oldest message whatever call it is of.
type rawReceiver interface {
	Receiver
	// oldest returns the oldest message in the slots and its call; nil if there is none.
	oldest() (Message, *Call, error)
	// free returns its slot.
	free()
}

// keep is Receiver.Stash of r, whose inbox this is.
func (b *inbox) keep(r rawReceiver, limit int) (bytes, messages int, err error) {
	for !b.open && bytes < limit {
		m, call, err := r.oldest()
		if call == nil || err != nil {
			return bytes, messages, err
		}
		data := slices.Clone(m.Data)
		if m.Far {
			data = make([]byte, m.Len)
			if ok, err := r.(*memReceiver).fetch(&m, data); !ok || err != nil {
				return bytes, messages, err
			}
		}
		bytes, messages = bytes+b.stash.put(*call, m, data), messages+1
		r.free()
	}
	return bytes, messages, nil
}

// Stashed implements Receiver.
func (b *inbox) Stashed() int { return b.stash.bytes }

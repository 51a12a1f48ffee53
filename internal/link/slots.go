package link

// A sender that runs ahead of its peer puts up to slotShare messages of up to shareMost bytes into one slot: so it runs further
// ahead, and does not write where the peer has just read (two loops between near cores, 4 KiB one way: 550 ns with 8 places,
// 290 with 64).
const (
	slotShare = 8
	shareMost = 16 << 10
)

// openSlot is a slot with messages in it where others may follow.
type openSlot struct {
	taken    int // its first bytes; 0: no message is there, and the next one needs it free
	messages int
}

// fits reports whether a message may follow, in a slot of that length.
func (o *openSlot) fits(max, length int) bool {
	return max <= shareMost && o.messages < slotShare && o.taken+max <= length
}

// add takes note of a message of n bytes at an offset, a whole number of lines.
func (o *openSlot) add(at, n int) {
	o.taken = at + (n+lineBytes-1)&^(lineBytes-1)
	o.messages++
}

// leads reports whether this rank runs ahead of its peer.
func (s *memSender) leads() bool { return s.next-s.consumed >= runsAhead }

// joins reports whether a message may lie in the slot that is open. A sender that waits for answers has few places, which
// stay hot.
func (s *memSender) joins(max int) bool { return s.leads() && s.open.fits(max, len(s.payloads[0])) }

// close ends the slot that is open: it is free when the latest of its messages has been consumed.
func (s *memSender) close() {
	s.paid++
	s.open = openSlot{}
	at := s.opened
	if s.next-s.consumed < s.next-at { // it has been
		at, s.freed = s.consumed, s.paid
	}
	for ; at != s.next; at++ { // what has been sent since has no slot
		s.marks[at&s.mask] = s.paid
	}
}

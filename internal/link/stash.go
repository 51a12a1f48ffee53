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

// put copies a message.
func (s *stash) put(c Call, m Message) {
	m.Data = slices.Clone(m.Data)
	m.Answer = nil
	s.kept = append(s.kept, kept{c, m})
	s.bytes += len(m.Data)
}

// first returns the oldest message, nil if there is none.
func (s *stash) first() *kept {
	if len(s.kept) == 0 {
		return nil
	}
	return &s.kept[0]
}

// drop forgets the oldest message.
func (s *stash) drop() {
	s.bytes -= len(s.kept[0].msg.Data)
	s.kept[0] = kept{}
	if s.kept = s.kept[1:]; len(s.kept) == 0 {
		s.kept = nil
	}
}

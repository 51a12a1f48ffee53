package link

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Cause says why a rank gave a communicator up.
type Cause uint8

// The causes of a notice.
const (
	CauseLost     Cause = iota + 1 // Culprit's process or connection is gone
	CauseMismatch                  // Culprit is in another call
	CauseGaveUp                    // Culprit's own deadline passed or its caller gave up
	CauseInternal                  // Culprit saw an error that it cannot go on after
	CauseClosed                    // Culprit closed its communicator in good order
	CauseRevoked                   // Culprit ended all calls, so that all ranks can recover
	CauseCorrupt                   // what came from Culprit was damaged on the way
)

// Notice is why a communicator broke: what a rank tells all others before it leaves.
type Notice struct {
	Cause   Cause
	From    int // who tells
	Culprit int // who is to blame
	Text    string
}

// Error returns the text.
func (n *Notice) Error() string { return n.Text }

// On the board: word 0 is the publication (1, over mapped memory only), then cause, from, culprit, length, text.
const noticeHeader = 8 + 2 + 4 + 4 + 2

const maxNoticeText = noticeBytes - noticeHeader

func (n *Notice) encode(b []byte) {
	text := cut(n.Text, maxNoticeText)
	binary.LittleEndian.PutUint16(b[8:], uint16(n.Cause))
	binary.LittleEndian.PutUint32(b[10:], uint32(n.From))
	binary.LittleEndian.PutUint32(b[14:], uint32(n.Culprit))
	binary.LittleEndian.PutUint16(b[18:], uint16(len(text)))
	copy(b[noticeHeader:], text)
}

// cut is the longest beginning of s of at most n bytes that ends where a character does.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Marshal returns the notice as bytes for ParseNotice, of a length that stays.
func (n *Notice) Marshal() []byte {
	b := make([]byte, noticeBytes)
	n.encode(b)
	return b
}

// ParseNotice is the inverse of Marshal. It checks what a rank of a communicator of size ranks may tell.
func ParseNotice(b []byte, from, size int) (*Notice, error) {
	if len(b) != noticeBytes {
		return nil, fmt.Errorf("link: notice of %d bytes from rank %d, %d expected", len(b), from, noticeBytes)
	}
	return decodeNotice(b, from, size)
}

func decodeNotice(b []byte, from, size int) (*Notice, error) {
	n := &Notice{
		Cause:   Cause(binary.LittleEndian.Uint16(b[8:])),
		From:    int(binary.LittleEndian.Uint32(b[10:])),
		Culprit: int(binary.LittleEndian.Uint32(b[14:])),
	}
	length := int(binary.LittleEndian.Uint16(b[18:]))
	if n.Cause < CauseLost || n.Cause > CauseCorrupt || n.From != from || n.Culprit >= size || length > maxNoticeText {
		return nil, fmt.Errorf("link: malformed notice from rank %d", from)
	}
	n.Text = string(b[noticeHeader : noticeHeader+length])
	return n, nil
}

package agree

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind is what a message says.
type Kind uint8

// The kinds of messages.
const (
	Contribute Kind = iota + 1 // member → coordinator: its flags, and what it has accepted
	Collect                    // coordinator → member: contribute; and what it knows so far
	Propose                    // coordinator → member
	Accept                     // member → coordinator
	Decide                     // who knows the decision → who does not
	Out                        // any → a suspected rank: you are out
	Abandon                    // coordinator → member: there is no quorum
)

// Message is one message of the protocol.
type Message struct {
	Kind     Kind
	From, To int // not encoded: a connection says it
	Round    uint64

	// Suspects and Certain are what the sender knew.
	Suspects, Certain Set

	Op     uint8    // of a contribution; in Collect: the sender's, 0 if it has not contributed
	Flags  uint64   // of a contribution; in Collect: the AND of those heard of
	Ballot int      // of a contribution with a value: whose proposal it was; else −1
	Value  *Outcome // accepted, proposed or decided
	Prev   *Outcome // the decision of Round−1, except in Decide, Out and Abandon
}

var errMalformed = errors.New("agree: malformed message")

// Append writes m behind b: kind, op, ballot+1 (4), round (8), flags (8), suspects, certain, then value
// and prev, each after a byte that is 1 if there is one and 0 if not: op, flags (8), failed. Sets are
// 64-bit words, rank 0 the lowest bit of the first. Numbers are big-endian.
func (m *Message) Append(b []byte) []byte {
	b = append(b, byte(m.Kind), m.Op)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Ballot+1))
	b = binary.BigEndian.AppendUint64(b, m.Round)
	b = binary.BigEndian.AppendUint64(b, m.Flags)
	b = appendSet(appendSet(b, m.Suspects), m.Certain)
	return appendOutcome(appendOutcome(b, m.Value), m.Prev)
}

func appendSet(b []byte, s Set) []byte {
	for _, w := range s {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return b
}

func appendOutcome(b []byte, o *Outcome) []byte {
	if o == nil {
		return append(b, 0)
	}
	b = append(b, 1, o.Op)
	return appendSet(binary.BigEndian.AppendUint64(b, o.Flags), o.Failed)
}

// Parse reads what Append wrote for a group of that size, and nothing behind it.
func Parse(b []byte, size int) (Message, error) {
	r := reader{b: b, size: size}
	m := Message{Kind: Kind(r.u8()), Op: r.u8()}
	m.Ballot = int(r.u32()) - 1
	m.Round, m.Flags = r.u64(), r.u64()
	m.Suspects, m.Certain = r.set(), r.set()
	m.Value, m.Prev = r.outcome(), r.outcome()
	if r.bad || len(r.b) != 0 {
		return Message{}, errMalformed
	}
	needsValue := m.Kind == Propose || m.Kind == Decide
	switch {
	case m.Kind < Contribute || m.Kind > Abandon:
		return Message{}, fmt.Errorf("%w: kind %d", errMalformed, m.Kind)
	case m.Round == 0, m.Ballot < -1, m.Ballot >= size, needsValue && m.Value == nil,
		m.Kind == Contribute && (m.Value == nil) != (m.Ballot == -1), !m.Suspects.Contains(m.Certain):
		return Message{}, errMalformed
	}
	return m, nil
}

// reader takes fields off the front of b; bad is set once one is not there or senseless.
type reader struct {
	b    []byte
	size int
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return make([]byte, n)
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) set() Set {
	s := NewSet(r.size)
	for i := range s {
		s[i] = r.u64()
	}
	if rest := r.size % 64; rest != 0 && s[len(s)-1]>>rest != 0 {
		r.bad = true
	}
	return s
}

func (r *reader) outcome() *Outcome {
	switch r.u8() {
	case 0:
		return nil
	case 1:
		o := &Outcome{Op: r.u8(), Flags: r.u64()}
		o.Failed = r.set()
		return o
	}
	r.bad = true
	return nil
}

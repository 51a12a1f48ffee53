package link

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// from puts both ends of a link over mapped memory where they are after seq messages.
func from(s *memSender, r *memReceiver, seq uint32) {
	s.next, s.consumed = seq, seq
	r.next, r.looked, r.credited = seq, seq, seq
	r.credit.Store(uint64(seq))
	s.back.next, s.back.looked, s.back.credited = seq, seq, seq
	r.back.next, r.back.consumed = seq, seq
}

// Sequence numbers wrap: a link goes on, and a lent span is released when it was consumed, whether it is
// the latest message or half of all numbers ago.
func TestSequenceNumbersWrap(t *testing.T) {
	for _, begin := range []uint32{0, math.MaxInt32 - 5, math.MaxInt32 + 3, math.MaxUint32 - 5, math.MaxUint32} {
		a, b := pair(t, Geometry{Lanes: 1, Slots: 4, SlotBytes: 64}, false)
		window := make([]byte, 256)
		b.Peer(0).windows = [][]byte{nil, window}
		s, r := a.Peer(1).Sender(0).(*memSender), b.Peer(0).Receiver(0).(*memReceiver)
		from(s, r, begin)
		call := Call{FP: 7}
		send := func() {
			_, ok := s.Reserve(8)
			require.True(t, ok)
			s.Commit(8, &call)
		}
		take := func() {
			m, err := r.Peek(&call)
			require.NoError(t, err)
			require.NotNil(t, m, "message %d", r.next)
			r.Advance(m.Len)
		}
		require.True(t, s.Drained(), "nothing was lent")
		for range 12 {
			send()
			require.True(t, s.Lend(Place{Window: 1}, Place{}, 100, &call))
			require.False(t, s.Drained())
			take()
			require.False(t, s.Drained())
			take()
			require.True(t, s.Drained())
			send() // its credit is held back, which is no business of the lent span's
			require.True(t, s.Drained())
			take()
		}
		// Long after a span was lent on one link of a lane, another one is.
		from(s, r, s.next+math.MaxInt32+1)
		require.True(t, s.Drained())
		send()
		require.True(t, s.Drained())
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// Where messages of the other direction bring all credit, the word is stored now and then all the same.
func TestCreditWordIsNeverOld(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 8, SlotBytes: 64}, false)
	call := Call{FP: 7}
	pass := func(s Sender, r Receiver) {
		_, ok := s.Reserve(8)
		require.True(t, ok)
		s.Commit(8, &call)
		m, err := r.Peek(&call)
		require.NoError(t, err)
		r.Advance(m.Len)
	}
	s := a.Peer(1).Sender(0).(*memSender)
	for range wordEvery + 10 {
		pass(s, b.Peer(0).Receiver(0))
		pass(b.Peer(0).Sender(0), a.Peer(1).Receiver(0))
	}
	require.LessOrEqual(t, s.next-uint32(s.credit.Load()), uint32(wordEvery))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// A message that waits to be taken brings the credit of its time. However many messages go the other way
// meanwhile, it is not taken for credit that is ahead.
func TestCreditOfAWaitingMessageIsNotAhead(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 8, SlotBytes: 64}, false)
	call := Call{FP: 7}
	s, r := a.Peer(1).Sender(0).(*memSender), b.Peer(0).Receiver(0)
	send := func(s Sender) {
		_, ok := s.Reserve(8)
		require.True(t, ok)
		s.Commit(8, &call)
	}
	send(b.Peer(0).Sender(0)) // which waits at a
	taken := uint32(0)
	for taken < 1<<16+2*headersLeast {
		for !s.full() {
			send(s)
		}
		require.LessOrEqual(t, s.consumed, taken, "credit for what has not been taken")
		for s.next-taken > headersLeast/2 {
			m, err := r.Peek(&call)
			require.NoError(t, err)
			r.Advance(m.Len)
			taken++
		}
	}
	m, err := a.Peer(1).Receiver(0).Peek(&call)
	require.NoError(t, err)
	require.NotNil(t, m)
	require.LessOrEqual(t, s.consumed, taken)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// A notice that is too long ends with a whole character.
func TestLongNotice(t *testing.T) {
	for n := range 5 {
		text := strings.Repeat("x", n) + strings.Repeat("→µ", noticeBytes)
		b := make([]byte, noticeBytes)
		(&Notice{Cause: CauseLost, From: 1, Culprit: 1, Text: text}).encode(b)
		got, err := decodeNotice(b, 1, 2)
		require.NoError(t, err)
		require.True(t, utf8.ValidString(got.Text))
		require.True(t, strings.HasPrefix(text, got.Text))
		require.Greater(t, len(got.Text), maxNoticeText-utf8.UTFMax)
	}
	require.Empty(t, cut("→", 2))
}

package link

import (
	"bytes"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/tcp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func tcpPair(t *testing.T, g Geometry) (a, b *Mesh) {
	return pairOver(t, Config{Geometry: g}, func() (rdma.Device, error) { return tcp.Open(tcp.Options{}) })
}

// Over posted writes short messages run further ahead than long ones, and neither kind waits for the other's room.
func TestShortMessagesRunAhead(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: 16 << 10}
	a, b := tcpPair(t, g)
	s, r, call := a.Peer(1).Sender(0), b.Peer(0).Receiver(0), Call{FP: 7}
	sent := 0
	send := func(n int) bool {
		buf, ok := s.Reserve(n)
		if ok {
			require.Len(t, buf, n)
			buf[0] = byte(sent)
			sent++
			s.Commit(n, &call)
		}
		return ok
	}
	for range g.Slots {
		require.True(t, send(shortMost+1))
	}
	require.False(t, send(shortMost+1), "there are %d slots", g.Slots)
	for range (posted{g}).headers() - g.Slots {
		require.True(t, send(shortMost))
		require.False(t, send(shortMost+1), "no slot is free")
	}
	require.False(t, send(1), "there are %d entries", posted{g}.headers())
	for taken := 0; taken < sent; {
		progress(t, a, b)
		m, err := r.Peek(&call)
		require.NoError(t, err)
		if m == nil {
			continue
		}
		require.Equal(t, byte(taken), m.Data[0])
		r.Advance(m.Len)
		taken++
	}
	for !send(1) { // credit comes though fewer slots are free than make it due, or none
		progress(t, a, b)
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// However a sender cuts a transfer, reserving for the rest of it, it arrives whole where the receiver wants it, and what
// comes later leaves that memory alone.
func TestExpectedHoweverCut(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: 16 << 10}
	a, b := tcpPair(t, g)
	s, r, call := a.Peer(1).Sender(0).(DirectSender), b.Peer(0).Receiver(0).(DirectReceiver), Call{FP: 7}
	rapid.Check(t, func(t *rapid.T) {
		var before [][2][]byte
		for range rapid.IntRange(1, 4).Draw(t, "transfers") {
			src := make([]byte, rapid.IntRange(1, 8*g.SlotBytes).Draw(t, "length"))
			for i := range src {
				src[i] = byte(i ^ i>>8 + len(before))
			}
			dst, direct := make([]byte, len(src)), rapid.Bool().Draw(t, "from where it lies")
			cuts := rapid.SliceOfN(rapid.OneOf(rapid.Just(g.SlotBytes), rapid.IntRange(1, g.SlotBytes)), 1, 12).Draw(t, "cuts")
			early := rapid.IntRange(0, 2).Draw(t, "messages before it is expected")
			ahead := rapid.Bool().Draw(t, "the sender runs ahead")
			sent, got, messages := 0, 0, 0
			send := func() bool {
				if sent == len(src) {
					return false
				}
				buf, ok := s.Reserve(len(src) - sent)
				if !ok {
					return false
				}
				if len(buf) > InlineBytes {
					buf = buf[:min(cuts[messages%len(cuts)], len(buf))]
				}
				if direct {
					s.CommitFrom(src[sent:][:len(buf)], &call)
				} else {
					s.Commit(copy(buf, src[sent:]), &call)
				}
				sent += len(buf)
				messages++
				return true
			}
			for range early {
				send()
			}
			progress(t, a, b)
			r.Expect(dst, Place{}, &call)
			for got < len(dst) {
				for send() && ahead {
				}
				progress(t, a, b)
				m, err := r.Peek(&call)
				require.NoError(t, err)
				if m == nil {
					continue
				}
				copy(dst[got:], m.Data)
				got += m.Len
				r.Advance(m.Len)
			}
			before = append(before, [2][]byte{src, dst})
			for !a.Drained() {
				progress(t, a, b)
			}
			for _, x := range before {
				require.True(t, bytes.Equal(x[0], x[1]))
			}
		}
	})
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

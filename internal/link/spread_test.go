package link

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeadersOfAMessage(t *testing.T) {
	for n, lines := range map[int]int{0: 1, InlineBytes: 1, InlineBytes + 1: 2, InlineBytes + restBytes: 2, InlineBytes + restBytes + 1: 3, SpreadBytes: spreadLines} {
		require.Equal(t, lines, headerLines(n), "%d bytes", n)
	}
	for slots := 2; slots <= 1<<12; slots *= 2 {
		for _, bytes := range []int{64, 128, 4096} {
			g := Geometry{Lanes: 1, Slots: slots, SlotBytes: bytes}
			most := g.spreadMost()
			require.GreaterOrEqual(t, most, InlineBytes)
			require.LessOrEqual(t, most, SpreadBytes)
			if most > InlineBytes {
				require.Less(t, most, g.roomBytes(), "a full slot would be taken for headers")
				require.LessOrEqual(t, headerLines(most)*g.Usable(), g.headers()-g.lag()+1, "fewer messages than proofs count on: %+v", g)
			}
		}
	}
	require.Equal(t, SpreadBytes, Geometry{Lanes: 1, Slots: 8, SlotBytes: 4096}.spreadMost())
}

// Messages of all short lengths go both ways, past the wrap of the numbers and where the ring ends within a message.
func TestMessagesInSeveralHeaders(t *testing.T) {
	for _, sums := range []bool{false, true} {
		for _, begin := range []uint32{0, math.MaxUint32 - 200} {
			a, b := pair(t, Geometry{Lanes: 1, Slots: 4, SlotBytes: 256, Checksum: sums}, false)
			if !sums {
				from(a.Peer(1).Sender(0).(*memSender), b.Peer(0).Receiver(0).(*memReceiver), begin)
			}
			random := rand.New(rand.NewPCG(1, 2))
			meshes, sent, got, taken := [2]*Mesh{a, b}, [2][]string{}, [2]int{}, 0
			for step := range 20_000 {
				r := random.IntN(2)
				call := &Call{FP: 7, A: 1}
				if random.IntN(2) == 0 {
					n, s := random.IntN(SpreadBytes+20), meshes[r].Peer(1-r).Sender(0)
					text := fmt.Sprintf("%-*d", n, step)[:n]
					buf, ok := []byte(nil), false
					if random.IntN(2) == 0 {
						ok = s.Put([]byte(text), call)
					} else if buf, ok = s.Reserve(n); ok {
						s.Commit(copy(buf, text), call)
					}
					if ok {
						sent[r] = append(sent[r], text)
					}
					continue
				}
				in := meshes[r].Peer(1 - r).Receiver(0)
				if random.IntN(50) == 0 {
					_, _, err := in.Stash(1000)
					require.NoError(t, err)
				}
				if random.IntN(2) == 0 && len(sent[1-r]) > got[1-r] {
					dst := make([]byte, len(sent[1-r][got[1-r]]))
					if in.Take(dst, call) == Taken {
						require.Equal(t, sent[1-r][got[1-r]], string(dst))
						taken++
						got[1-r]++
						continue
					}
				}
				m, err := in.Peek(call)
				require.NoError(t, err)
				if m == nil {
					require.Len(t, sent[1-r], got[1-r], "one is there")
					continue
				}
				require.Equal(t, sent[1-r][got[1-r]], string(m.Data))
				if half := m.Len / 2; half > 0 {
					in.Advance(half)
					require.Equal(t, sent[1-r][got[1-r]][half:], string(m.Data))
				}
				in.Advance(m.Len)
				got[1-r]++
			}
			require.Greater(t, got[0]+got[1], 5000)
			require.Equal(t, !sums, taken > 2000, taken)
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		}
	}
}

// A message is there when all of its headers are, in whatever order they come.
func TestAMessageIsThereWithItsLastHeader(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 4, SlotBytes: 256}, false)
	s, r := a.Peer(1).Sender(0).(*memSender), b.Peer(0).Receiver(0).(*memReceiver)
	call := Call{FP: 7}
	buf, ok := s.Reserve(SpreadBytes)
	require.True(t, ok)
	copy(buf, "text")
	s.Commit(SpreadBytes, &call)
	for i := range spreadLines {
		pub := &r.headers[i].pub
		v := pub.Load()
		pub.Store(0)
		m, err := r.Peek(&call)
		require.NoError(t, err)
		require.Nil(t, m, "without header %d", i)
		require.Equal(t, Nothing, r.Take(make([]byte, SpreadBytes), &call), "without header %d", i)
		_, messages, err := r.Stash(1000)
		require.NoError(t, err)
		require.Zero(t, messages, "without header %d", i)
		pub.Store(v)
	}
	m, err := r.Peek(&call)
	require.NoError(t, err)
	require.Equal(t, SpreadBytes, m.Len)
	require.Equal(t, "text", string(m.Data[:4]))
	r.Advance(m.Len)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

package link

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// earlyPair is two ranks over posted writes, which loopback lands at once, and where memory may be looked at.
func earlyPair(t require.TestingT, g Geometry) (a, b *Mesh) {
	a, b = pair(t, g, true)
	a.Peer(1).wire.early, b.Peer(0).wire.early = true, true
	return a, b
}

// A message is there when the last byte of its line has landed, in whatever order they do, and not before.
func TestSealNeedsEveryByte(t *testing.T) {
	a, b := earlyPair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})
	defer a.Close()
	defer b.Close()
	s, r := a.Peer(1).Sender(0).(*wireSender), b.Peer(0).Receiver(0).(*wireReceiver)
	seq := 0
	rapid.Check(t, func(t *rapid.T) {
		entry := seq % len(r.entries)
		old := append([]byte(nil), r.entries[entry][:lineBytes]...)
		src := rapid.SliceOfN(rapid.Byte(), 0, SealedBytes).Draw(t, "payload")
		call := Call{FP: rapid.Uint64().Draw(t, "fingerprint"), A: uint64(seq), B: rapid.Uint64Range(0, 3).Draw(t, "count")}
		require.True(t, s.Put(src, &call))
		line := append([]byte(nil), r.entries[entry][:lineBytes]...)
		copy(r.entries[entry], old) // and now it lands
		left := 0
		for i := range line {
			if line[i] != old[i] {
				left++
			}
		}
		dst := make([]byte, len(src))
		for _, i := range rapid.Permutation(seqTo(lineBytes)).Draw(t, "order") {
			if line[i] == old[i] {
				continue
			}
			require.Equal(t, Nothing, r.Take(dst, &call), "%d bytes have not landed", left)
			m, err := r.Peek(&call)
			require.NoError(t, err)
			require.Nil(t, m)
			r.entries[entry][i] = line[i]
			left--
		}
		require.Equal(t, Taken, r.Take(dst, &call))
		require.Equal(t, src, dst)
		seq++
		progress(t, b, a)
	})
	require.Equal(t, r.l.taken, r.l.arrived)
}

func seqTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// What is taken early is counted when its completion is polled: no more than aheadMost messages are ahead, so that
// receives suffice, and nothing is taken twice, lost or out of order, whenever either rank polls.
func TestEarlyIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Geometry{Lanes: 1, Slots: 2, SlotBytes: 128, Checksum: rapid.Bool().Draw(t, "checksum")}
		a, b := earlyPair(t, g)
		defer a.Close()
		defer b.Close()
		ms, calls := [2]*Mesh{a, b}, Call{FP: 7}
		var sent, got [2]uint64
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			at := rapid.IntRange(0, 1).Draw(t, "rank")
			s, r := ms[at].Peer(1-at).Sender(0), ms[at].Peer(1-at).Receiver(0)
			size := func(i uint64) int { return []int{8, 8, 24, 16, 32, 8}[i%6] }
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				_, err := ms[at].Progress()
				require.NoError(t, err)
			case 1, 2, 3:
				msg := make([]byte, size(sent[at]))
				binary.LittleEndian.PutUint64(msg, sent[at])
				if s.Put(msg, &calls) {
					sent[at]++
				}
			default:
				want := make([]byte, size(got[at]))
				n := 0
				if m, err := r.Peek(&calls); m != nil || err != nil {
					require.NoError(t, err)
					n = copy(want, m.Data)
					require.Equal(t, size(got[at]), m.Len)
					r.Advance(m.Len)
				}
				if n > 0 {
					require.Equal(t, got[at], binary.LittleEndian.Uint64(want))
					got[at]++
				}
				require.LessOrEqual(t, got[at], sent[1-at])
			}
			for _, m := range ms {
				for _, l := range m.Peer(1 - m.rank).wire.lanes {
					require.LessOrEqual(t, int32(l.taken-l.arrived), int32(aheadMost))
				}
			}
		}
		for range 4 {
			for at, m := range ms {
				_, err := m.Progress()
				require.NoError(t, err)
				for r := m.Peer(1 - at).Receiver(0); ; got[at]++ {
					m, err := r.Peek(&calls)
					require.NoError(t, err)
					if m == nil {
						break
					}
					require.Equal(t, got[at], binary.LittleEndian.Uint64(m.Data))
					r.Advance(m.Len)
				}
				require.Nil(t, m.Peer(1-at).Gone())
			}
		}
		require.Equal(t, sent, [2]uint64{got[1], got[0]})
	})
}

// Messages are taken before Progress up to a bound, and then only as their completions are polled.
func TestEarlyIsBounded(t *testing.T) {
	a, b := earlyPair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})
	defer a.Close()
	defer b.Close()
	call, src, dst := Call{FP: 7}, make([]byte, 8), make([]byte, 8)
	s, r := a.Peer(1).Sender(0), b.Peer(0).Receiver(0)
	for range aheadMost + 2 {
		require.True(t, s.Put(src, &call))
	}
	for range aheadMost {
		require.Equal(t, Taken, r.Take(dst, &call))
	}
	require.Equal(t, Nothing, r.Take(dst, &call))
	_, err := b.Progress()
	require.NoError(t, err)
	require.Equal(t, Taken, r.Take(dst, &call))
	require.Equal(t, Taken, r.Take(dst, &call))
	long := make([]byte, SealedBytes+1)
	require.True(t, s.Put(long, &call))
	require.Equal(t, Nothing, r.Take(long, &call), "without a seal")
	_, err = b.Progress()
	require.NoError(t, err)
	require.Equal(t, Taken, r.Take(long, &call))
	require.True(t, a.Early() && b.Early())
	b.Peer(0).wire.early = false
	require.False(t, b.Early())
}

// A word that makes a factor of the hash 0 hides none of the others.
func TestSealCoversEveryWord(t *testing.T) {
	for zero := range 7 {
		words := [7]uint64{0xa0761d6478bd642f, 0xe7037ed1a0b428db, 3, 0x8ebc6af09c88c6e3, 5, 0x589965cc75374cc3, 7}
		for i := range words {
			if i != zero && zero < 6 {
				words[i] ^= uint64(1+i) << 32
			}
		}
		seal := func(w [7]uint64) uint64 {
			h := header{call: Call{FP: w[1], A: w[2], B: w[3]}, inline: [4]uint64{w[4], w[5], w[6]}}
			return h.seal(w[0])
		}
		for i := range words {
			other := words
			other[i] ^= 1 << 17
			require.NotEqual(t, seal(words), seal(other), "word %d, with a factor 0 of word %d", i, zero)
		}
	}
}

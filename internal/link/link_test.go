package link

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// pair connects two ranks over loopback.
func pair(t require.TestingT, g Geometry, noMap bool) (a, b *Mesh) {
	m := connected(t, 2, g, noMap)
	return m[0], m[1]
}

// connected connects n ranks over loopback.
func connected(t require.TestingT, n int, g Geometry, noMap bool) []*Mesh {
	net := loopback.NewNetwork()
	return meshes(t, n, Config{Geometry: g, NoMap: noMap, Touch: 1}, func() rdma.Device { return net.Device() })
}

// meshes connects n ranks, each over a device of its own.
func meshes(t require.TestingT, n int, cfg Config, device func() rdma.Device) (ms []*Mesh) {
	var blobs [][]byte
	for r := range n {
		dev := device()
		cfg.Rank, cfg.Size, cfg.Bell = r, n, NewBell()
		cfg.Device, cfg.Describe = func(int) rdma.Device { return dev }, func(r int) string { return fmt.Sprintf("rank %d", r) }
		m, err := New(cfg)
		require.NoError(t, err)
		ms, blobs = append(ms, m), append(blobs, m.Blob())
	}
	var all errgroup.Group
	for _, m := range ms {
		all.Go(func() error { return m.Connect(context.Background(), blobs) })
	}
	require.NoError(t, all.Wait())
	return ms
}

// A link is a queue: whatever is sent, in whatever pieces it is taken, arrives in order; a sender is
// never given a slot that is not free, and always gets one in the end.
func TestLinkIsAQueue(t *testing.T) {
	for _, noMap := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			g := Geometry{Lanes: 2, Slots: 1 << rapid.IntRange(1, 4).Draw(t, "slots"), SlotBytes: 64 << rapid.IntRange(0, 9).Draw(t, "bytes"),
				Checksum: rapid.Bool().Draw(t, "checksum")}
			a, b := pair(t, g, noMap)
			defer a.Close()
			defer b.Close()
			call := Call{FP: 7, A: 1, B: 2}
			s, r := a.Peer(1).Sender(1), b.Peer(0).Receiver(1)
			var queued [][]byte // what the receiver has still to see
			next := byte(0)
			for range rapid.IntRange(1, 200).Draw(t, "steps") {
				progress(t, a, b)
				switch rapid.IntRange(0, 5).Draw(t, "step") {
				case 4:
					small := make([]byte, rapid.SampledFrom([]int{0, 5, 8, 8, 24, InlineBytes}).Draw(t, "small"))
					for i := range small {
						small[i] = next + byte(i)
					}
					if s.Put(small, &call) {
						next += byte(len(small))
						queued = append(queued, small)
					} else {
						require.NotEmpty(t, queued, "full, but nothing is under way")
					}
				case 5:
					dst := make([]byte, rapid.IntRange(0, InlineBytes).Draw(t, "room"))
					if len(queued) > 0 && rapid.Bool().Draw(t, "fits") {
						dst = make([]byte, len(queued[0]))
					}
					switch took := r.Take(dst, &call); {
					case took == Taken:
						require.NotEmpty(t, queued)
						require.Equal(t, queued[0], dst)
						queued = queued[1:]
					case took == Nothing && !noMap:
						require.Empty(t, queued)
					}
				case 0, 1:
					n := rapid.IntRange(0, g.SlotBytes).Draw(t, "n")
					buf, ok := s.Reserve(n)
					if !ok {
						require.NotEmpty(t, queued, "full, but nothing is under way")
						continue
					}
					require.Len(t, buf, n)
					for i := range buf {
						buf[i] = next
						next++
					}
					queued = append(queued, bytes.Clone(buf))
					s.Commit(n, &call)
				case 2:
					m, err := r.Peek(&call)
					require.NoError(t, err)
					if m == nil {
						if !noMap {
							require.Empty(t, queued)
						}
						continue
					}
					require.NotEmpty(t, queued)
					require.Equal(t, len(queued[0]), m.Len)
					require.Equal(t, queued[0], append([]byte{}, m.Data...))
					k := rapid.IntRange(0, m.Len).Draw(t, "take")
					if k == 0 && m.Len > 0 {
						continue
					}
					r.Advance(k)
					if queued[0] = queued[0][k:]; len(queued[0]) == 0 {
						queued = queued[1:]
					}
				case 3:
					if rapid.IntRange(0, 9).Draw(t, "stash") == 0 {
						_, _, err := r.Stash(1 << 20)
						require.NoError(t, err)
					}
				}
			}
		})
	}
}

// Take takes what is expected and leaves the rest as it is: messages of other calls and lengths, those that are
// neither in headers nor in a slot, that are half taken or stashed.
func TestTakeLeavesTheRest(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 8, SlotBytes: 64}, false)
	s, r := a.Peer(1).Sender(0), b.Peer(0).Receiver(0)
	call := Call{FP: 7}
	dst := make([]byte, 8)
	require.Equal(t, Nothing, r.Take(dst, &call))
	require.True(t, s.Put([]byte("expected"), &call))
	require.Equal(t, Taken, r.Take(dst, &call))
	require.Equal(t, "expected", string(dst))

	require.True(t, s.Put([]byte("expected"), &call))
	require.Equal(t, Other, r.Take(dst[:7], &call))
	require.Equal(t, Other, r.Take(dst, &Call{FP: 8}))
	_, err := r.Peek(&Call{FP: 8})
	var other *Mismatch
	require.ErrorAs(t, err, &other)
	m, err := r.Peek(&call)
	require.NoError(t, err)
	require.Equal(t, "expected", string(m.Data))
	require.Equal(t, Other, r.Take(dst, &call), "half taken")
	r.Advance(8)

	require.True(t, s.(Lender).Placed(8, &call))
	require.Equal(t, Other, r.Take(dst, &call), "placed")
	m, err = r.Peek(&call)
	require.NoError(t, err)
	require.True(t, m.Placed)
	r.Advance(8)

	require.True(t, s.Put(make([]byte, 40), &call))
	_, _, err = r.Stash(1)
	require.NoError(t, err)
	require.True(t, s.Put([]byte("expected"), &call))
	require.Equal(t, Other, r.Take(dst, &call), "one in the stash comes first")
}

// Take copies nothing from outside the slots, wherever a message says that it lies.
func TestTakeOfASlotThatIsNotThere(t *testing.T) {
	for _, at := range []uint64{8*256 - SpreadBytes, 8*256 + 1, 1 << 63, 1<<64 - 1} {
		a, b := pair(t, Geometry{Lanes: 1, Slots: 8, SlotBytes: 256}, false)
		s, r := a.Peer(1).Sender(0), b.Peer(0).Receiver(0).(*memReceiver)
		call := Call{FP: 7}
		require.True(t, s.Put(make([]byte, SpreadBytes+1), &call))
		r.headers[0].inline[0] = at
		require.Equal(t, Other, r.Take(make([]byte, SpreadBytes+1), &call), "%d", at)
		_, err := r.Peek(&call)
		var corrupt *Corrupt
		require.ErrorAs(t, err, &corrupt)
	}
}

func TestOtherCallIsAMismatch(t *testing.T) {
	for _, noMap := range []bool{false, true} {
		a, b := pair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, noMap)
		s, r := a.Peer(1).Sender(0), b.Peer(0).Receiver(0)
		_, ok := s.Reserve(0)
		require.True(t, ok)
		s.Commit(0, &Call{FP: 1, A: 11, B: 12})
		_, err := b.Progress()
		require.NoError(t, err)
		_, err = r.Peek(&Call{FP: 2, A: 21, B: 22})
		var m *Mismatch
		require.ErrorAs(t, err, &m)
		require.Equal(t, Mismatch{Peer: 0, Mine: Call{2, 21, 22}, Theirs: Call{1, 11, 12}}, *m)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

func TestNoticeAndGoodbye(t *testing.T) {
	for _, noMap := range []bool{false, true} {
		a, b := pair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, noMap)
		require.Nil(t, b.Failed())
		n := &Notice{Cause: CauseGaveUp, From: 0, Culprit: 0, Text: "enough"}
		require.Equal(t, n, a.Fail(n))
		other := &Notice{Cause: CauseLost, From: 0, Culprit: 1, Text: "later"}
		require.Equal(t, n, a.Fail(other), "the first cause stays")
		_, err := b.Progress()
		require.NoError(t, err)
		require.Equal(t, n, b.Failed())
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())

		a, b = pair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, noMap)
		a.Goodbye()
		_, err = b.Progress()
		require.NoError(t, err)
		require.Nil(t, b.Failed(), "a goodbye breaks nothing")
		require.Equal(t, CauseClosed, b.Peer(0).Gone().Cause)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// What is lent is read in place and released by the receiver; an answer is placed in the lender's
// memory.
func TestLendAndPlace(t *testing.T) {
	a, b := pair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, false)
	defer a.Close()
	defer b.Close()
	region, err := (*a.ports.Load())[0].dev.Alloc(4096, "window")
	require.NoError(t, err)
	mapped, err := b.Peer(0).MapWindow(context.Background(), region.Remote())
	require.NoError(t, err)
	b.Peer(0).SetWindow(1, nil, region.Remote(), mapped)
	mem := region.Bytes()
	copy(mem[100:], "lent bytes")
	call := Call{FP: 9}
	s, r := a.Peer(1).Sender(0).(Lender), b.Peer(0).Receiver(0)
	require.True(t, s.Drained())
	require.True(t, s.Lend(Place{1, 100}, Place{1, 200}, 10, &call))
	require.False(t, s.Drained())
	m, err := r.Peek(&call)
	require.NoError(t, err)
	require.Equal(t, "lent bytes", string(m.Data))
	copy(m.Answer, "answer")
	r.Advance(10)
	require.True(t, s.Drained())
	require.Equal(t, "answer", string(mem[200:206]))

	back, in := b.Peer(0).Sender(0).(Lender), a.Peer(1).Receiver(0)
	require.True(t, back.Placed(6, &call))
	m, err = in.Peek(&call)
	require.NoError(t, err)
	require.True(t, m.Placed)
	require.Equal(t, 6, m.Len)
	in.Advance(6)

	require.True(t, s.Lend(Place{1, 4090}, Place{}, 10, &call), "the sender does not know the window's end")
	_, err = r.Peek(&call)
	var c *Corrupt
	require.ErrorAs(t, err, &c)
}

// Credit comes with messages in the other direction, also with those that are not taken in yet: a
// rank that sends a ring full, and another, before it receives anything must not wait for a word that the
// peer had no reason to store. What fits into headers is limited by them, the rest by the slots.
func TestCreditComesWithMessages(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 8, SlotBytes: 320}
	for size, most := range map[int]int{4: headersLeast, 40: headersLeast / 2, SpreadBytes + 1: g.Slots} {
		a, b := pair(t, g, false)
		call := Call{FP: 7}
		send := func(m *Mesh, to int) bool {
			s := m.Peer(to).Sender(0)
			if _, ok := s.Reserve(size); !ok {
				return false
			}
			s.Commit(size, &call)
			return true
		}
		take := func(m *Mesh, from int) {
			r := m.Peer(from).Receiver(0)
			got, err := r.Peek(&call)
			require.NoError(t, err)
			require.NotNil(t, got)
			r.Advance(size)
		}
		for round := range 3 * (1 << 16) / most { // past the wrap of the numbers
			for range most {
				require.True(t, send(a, 1), "round %d", round)
			}
			require.False(t, send(a, 1), "round %d: a slot that is not free", round)
			take(b, 0)
			require.True(t, send(b, 0))
			require.True(t, send(a, 1), "round %d: b has said that a slot is free", round)
			for range most {
				take(b, 0)
			}
			take(a, 1)
		}
		require.Zero(t, a.Peer(1).senders[0].(*memSender).next-b.Peer(0).receives[0].(*memReceiver).next)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

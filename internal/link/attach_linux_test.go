package link

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A message that is lent where it lies is read bit by bit, or stashed, and its sender learns when that is over.
func TestLentInOrdinaryMemory(t *testing.T) {
	a, b := sharedPair(t, Config{Geometry: Geometry{Lanes: 2, Slots: 2, SlotBytes: 64}, Attach: true})
	require.True(t, a.Peer(1).Attached())
	require.True(t, b.Peer(0).Attached())
	src := make([]byte, 1<<20)
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	call := Call{FP: 7}
	s, r := a.Peer(1).Sender(1).(DirectSender), b.Peer(0).Receiver(1).(FarReceiver)
	lend := func() {
		n, ok := s.ReserveFrom(src, Place{}, &call)
		require.True(t, ok)
		require.Equal(t, len(src), n)
		s.CommitFrom(src, &call)
		require.False(t, s.Drained())
	}

	lend()
	got := make([]byte, len(src))
	for at := 0; at < len(src); {
		m, err := r.Peek(&call)
		require.NoError(t, err)
		require.Equal(t, []any{true, true, len(src) - at}, []any{m.Far, m.Lent, m.Len})
		n := min(300_001, m.Len)
		ok, err := r.Fetch(got[at:][:n])
		require.NoError(t, err)
		require.True(t, ok)
		r.Advance(n)
		at += n
	}
	require.Equal(t, src, got)
	require.True(t, s.Drained())

	lend()
	_, messages, err := r.Stash(1)
	require.NoError(t, err)
	require.Equal(t, 1, messages)
	require.True(t, s.Drained())
	kept := bytes.Clone(src)
	clear(src)
	m, err := r.Peek(&call)
	require.NoError(t, err)
	require.False(t, m.Far)
	require.Equal(t, kept, m.Data)
	require.EqualValues(t, 2*len(src), b.Fetched())
	r.Advance(m.Len)

	lend() // and is gone
	m, err = r.Peek(&call)
	require.NoError(t, err)
	require.True(t, m.Far)
	require.NoError(t, a.Close())
	ok, err := r.Fetch(got[:10])
	require.NoError(t, err)
	require.False(t, ok)
}

// Who has given up has its memory back, and may have unmapped it: what its peers cannot read then is no error of theirs.
func TestLentByWhoHasGivenUp(t *testing.T) {
	for _, stash := range []bool{false, true} {
		a, b := sharedPair(t, Config{Geometry: Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, Attach: true})
		src, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		call := Call{FP: 7}
		a.Peer(1).Sender(0).(DirectSender).CommitFrom(src, &call)
		r := b.Peer(0).Receiver(0).(FarReceiver)
		if !stash {
			m, err := r.Peek(&call)
			require.NoError(t, err)
			require.True(t, m.Far)
		}
		n := a.Fail(&Notice{Cause: CauseGaveUp, Text: "enough"})
		require.NoError(t, unix.Munmap(src))
		if stash {
			_, messages, err := r.Stash(1)
			require.NoError(t, err)
			require.Zero(t, messages)
		} else {
			ok, err := r.Fetch(make([]byte, 1<<20))
			require.NoError(t, err)
			require.False(t, ok)
		}
		require.Equal(t, n.Text, b.Failed().Text)
	}
}

// Who does not read others' memory takes no address for a message.
func TestNotAttached(t *testing.T) {
	for _, g := range []Geometry{{Lanes: 1, Slots: 2, SlotBytes: 64}, {Lanes: 1, Slots: 2, SlotBytes: 64, Checksum: true}} {
		a, b := sharedPair(t, Config{Geometry: g, Attach: g.Checksum})
		require.False(t, a.Peer(1).Attached())
		if g.Checksum {
			continue
		}
		call := Call{FP: 7}
		a.Peer(1).Sender(0).(DirectSender).CommitFrom(make([]byte, 100), &call)
		_, err := b.Peer(0).Receiver(0).Peek(&call)
		require.ErrorAs(t, err, new(*Corrupt))
		require.ErrorContains(t, err, "which is not read")
	}
}

// A rank that is told a wrong address of its peer's finds out, and is sent slots.
func TestAttachToAnotherAddress(t *testing.T) {
	a, b := sharedPair(t, Config{Geometry: Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, Attach: true})
	p := a.Peer(1)
	p.attach = nil
	wordAt(p.mapped[p.mesh.geo.creditOffset(0)+attachWord:]).Store(0)
	p.attachTo(addressOf(make([]byte, 1<<16)))
	require.Nil(t, p.attach)
	require.False(t, b.Peer(0).Attached())
	p.attachTo(4096) // nothing is there
	require.False(t, b.Peer(0).Attached())
	p.attachTo(b.Peer(0).sectionAddress())
	require.True(t, b.Peer(0).Attached())
}

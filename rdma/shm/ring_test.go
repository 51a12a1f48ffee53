//go:build linux

package shm

import (
	"testing"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// newRing returns both ends of a ring in one process, over two mappings.
func newRing(t require.TestingT, depth int) (*inbox, *outbox) {
	in, err := newInbox(depth)
	require.NoError(t, err)
	fds, err := dupAll(in.mem)
	require.NoError(t, err)
	defer closeAll(fds)
	require.NoError(t, in.mem.CloseFile())
	mem, err := hostmem.MapShared(fds[0], ringBytes(in.depth()), "test ring")
	require.NoError(t, err)
	return in, newOutbox(mem, in.depth())
}

// Against the obvious model, a slice: what is put comes out in order, nothing else does, and the
// writer never has more under way than the ring holds.
func TestRingIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out := newRing(t, rapid.IntRange(1, 9).Draw(t, "depth"))
		type entry struct {
			imm    uint32
			length int
		}
		var model []entry
		unreleased := 0 // taken, but not yet shown to the writer
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				room := out.room()
				require.Equal(t, len(model)+unreleased < in.depth(), room)
				if !room {
					t.Skip("full")
				}
				e := entry{rapid.Uint32().Draw(t, "imm"), rapid.IntRange(0, maxMessage).Draw(t, "length")}
				out.put(e.imm, e.length)
				model = append(model, e)
			},
			"take": func(t *rapid.T) {
				require.Equal(t, len(model) > 0, in.ready())
				imm, length, ok, err := in.take()
				require.NoError(t, err)
				require.Equal(t, len(model) > 0, ok)
				if ok {
					require.Equal(t, model[0], entry{imm, length})
					model = model[1:]
					unreleased++
				}
			},
			"release": func(*rapid.T) { in.release(); unreleased = 0 },
		})
	})
}

// A count of 32 bits in the stamp wraps; the ring must not notice.
func TestRingBeyondTheStamp(t *testing.T) {
	in, out := newRing(t, 4)
	const start = 1<<32 - 6
	in.head.Store(start)
	in.release()
	out.tail, out.head = start, start
	for k := uint64(start - 4); k < start; k++ {
		in.entries[2*(k&in.mask)+1].Store(stampOf(k, 0)) // the lap before
	}
	for i := range uint32(20) {
		_, _, ok, err := in.take()
		require.NoError(t, err)
		require.False(t, ok, "empty before entry %d", i)
		require.True(t, out.room())
		out.put(i, int(i))
		imm, _, ok, err := in.take()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, i, imm)
		in.release()
	}
}

// The ring is memory that a peer writes: whatever it holds, the reader stays inside it and says so.
func TestRubbishInTheRingIsAnError(t *testing.T) {
	for name, write := range map[string]func(*inbox){
		"a stamp from nowhere": func(in *inbox) { in.entries[1].Store(77 << 32) },
		"a stamp too early":    func(in *inbox) { in.entries[1].Store(stampOf(4, 0)) },
		"too long a write": func(in *inbox) {
			in.entries[0].Store(maxMessage + 1)
			in.entries[1].Store(stampOf(0, 0))
		},
	} {
		in, _ := newRing(t, 4)
		write(in)
		require.True(t, in.ready(), name)
		_, _, ok, err := in.take()
		require.Error(t, err, name)
		require.False(t, ok, name)
	}
}

func TestWriterBelievesNoImpossibleCount(t *testing.T) {
	_, out := newRing(t, 2)
	out.put(1, 0)
	out.put(2, 0)
	for _, lie := range []uint64{0, 3, 1 << 63, ^uint64(0)} {
		out.seen.Store(lie)
		require.False(t, out.room(), "count %d", lie)
	}
	out.seen.Store(1)
	require.True(t, out.room())
}

func TestRubbishBreaksTheEndpointAndNoMore(t *testing.T) {
	a, b := newPair(t)
	b.in.entries[1].Store(99 << 32)
	n, err := b.cq.Poll(b.scratch[:])
	require.NoError(t, err)
	require.Zero(t, n)
	require.ErrorContains(t, <-b.lost, "sent rubbish")
	require.ErrorContains(t, <-a.lost, "closed the endpoint")
	_, err = b.Post(nil)
	require.NoError(t, err)
}

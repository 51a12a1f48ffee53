//go:build linux

package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// send posts the first n bytes of a's memory to an offset of b's, with an immediate.
func send(t *testing.T, a, b *end, n, offset int) {
	t.Helper()
	k, err := a.ep.Post([]rdma.Write{{Local: a.mem.Bytes()[:n], Region: a.mem, Remote: b.mem.Remote(), Offset: uint64(offset), HasImm: true}})
	require.NoError(t, err)
	require.Equal(t, 1, k)
}

// receive polls both ends until b has received n writes.
func receive(t *testing.T, a, b *end, n int) {
	t.Helper()
	for n > 0 {
		_, err := a.cq.Poll(a.cs[:])
		require.NoError(t, err)
		k, err := b.cq.Poll(b.cs[:])
		require.NoError(t, err)
		n -= k
	}
}

// A redirected write lands elsewhere, once; one that is too long, or begins elsewhere, lands in the region.
func TestRedirect(t *testing.T) {
	const size = 300_000
	for _, opts := range []Options{{}, {Sockets: 3}, {Checksum: true}} {
		a, b := newEnds(t, opts, 2*size)
		copy(a.mem.Bytes(), touched(2*size))
		to := b.mem.(*region)
		n := 200_000
		dst := make([]byte, n)
		to.Redirect(size, dst)
		send(t, a, b, n, 0)
		send(t, a, b, n, size)
		receive(t, a, b, 2)
		require.Equal(t, n, to.Redirected(size), "the write at the offset was redirected")
		require.Equal(t, -1, to.Redirected(size), "the detour is over")
		require.Equal(t, touched(n), dst)
		require.Equal(t, touched(n), b.mem.Bytes()[:n])
		require.Equal(t, make([]byte, n), b.mem.Bytes()[size:][:n], "nothing landed in the region")

		clear(dst)
		to.Redirect(size, dst)
		send(t, a, b, n, size)
		send(t, a, b, n, size)
		receive(t, a, b, 2)
		require.Equal(t, touched(n), b.mem.Bytes()[size:][:n], "only one write is redirected")

		to.Redirect(0, dst[:n-1])
		clear(b.mem.Bytes())
		send(t, a, b, n, 0)
		receive(t, a, b, 1)
		require.Equal(t, -1, to.Redirected(0))
		require.Equal(t, touched(n), b.mem.Bytes()[:n], "a write that does not fit lands in the region")
	}
}

// After Restore nothing more is stored elsewhere, not even the rest of a write that is half there.
func TestRestore(t *testing.T) {
	const size, half = 100_000, 60_000
	a, b := newEnds(t, Options{}, size)
	to, lane := b.mem.(*region), b.ep.lanes[0]
	dst := make([]byte, size)
	to.Redirect(0, dst)
	h := header{kind: frameWrite, flags: flagImm, key: to.key, length: size, total: size}
	rawSend(a.ep.lanes[0].fd, append(h.append(nil), touched(half)...))
	for len(lane.in.left) != size-half {
		n, err := b.cq.Poll(b.cs[:])
		require.NoError(t, err)
		require.Zero(t, n)
	}
	require.Equal(t, half, bytes.Count(dst, []byte{1}), "the first half is redirected")
	to.Restore()
	rawSend(a.ep.lanes[0].fd, touched(size-half))
	require.NoError(t, b.awaitReceived(1))
	require.Equal(t, half, bytes.Count(dst, []byte{1}), "stored elsewhere after Restore")
	require.Equal(t, touched(size-half), b.mem.Bytes()[half:])
}

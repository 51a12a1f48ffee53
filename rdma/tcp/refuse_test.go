//go:build linux

package tcp

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// newWatchedEnds is newEnds with channels that receive what OnLost is given.
func newWatchedEnds(tb testing.TB, opts Options, memory int) (a, b *end, lostA, lostB chan error) {
	tb.Helper()
	a, b = newEnd(tb, opts, memory), newEnd(tb, opts, memory)
	lostA, lostB = make(chan error, 1), make(chan error, 1)
	for x, lost := range map[*end]chan error{a: lostA, b: lostB} {
		e, err := x.dev.NewEndpoint(x.cq, rdma.EndpointOptions{OnLost: func(err error) { lost <- err }})
		require.NoError(tb, err)
		x.ep = e.(*endpoint)
	}
	join(tb, a.ep, b.ep)
	return a, b, lostA, lostB
}

// pollBoth polls until a loss is reported, and returns it.
func pollBoth(tb testing.TB, a, b *end, lost chan error) error {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for _, x := range []*end{a, b} {
			n, err := x.cq.Poll(x.cs[:])
			require.NoError(tb, err)
			for _, c := range x.cs[:n] {
				require.NotEqual(tb, rdma.Received, c.Kind, "a refused write is not announced")
			}
		}
		select {
		case err := <-lost:
			return err
		default:
		}
	}
	require.FailNow(tb, "no loss reported")
	return nil
}

// forged puts a frame on the wire that the transmitter would not send.
func forged(tb testing.TB, a *end, h header, payload []byte) {
	tb.Helper()
	a.ep.tx.mu.Lock()
	defer a.ep.tx.mu.Unlock()
	b := append(h.append(nil), payload...)
	n, err := unix.Write(a.ep.lanes[0].fd, b)
	require.NoError(tb, err)
	require.Equal(tb, len(b), n)
}

// A frame that the receiver must not carry out changes no byte and breaks both ends, which both
// learn why.
func TestForgedFrames(t *testing.T) {
	const size = 4096
	payload := bytes.Repeat([]byte{0xee}, 64)
	sum := crc32.Checksum(payload, castagnoli)
	for name, c := range map[string]struct {
		change func(h *header)
		want   error // at both ends, besides ErrPeerLost
		text   string
	}{
		"no such key":      {func(h *header) { h.key ^= 1 }, rdma.ErrAccess, "no region with this key"},
		"key 0":            {func(h *header) { h.key = 0 }, rdma.ErrAccess, "no region with this key"},
		"beyond the end":   {func(h *header) { h.addr = size - 63 }, rdma.ErrAccess, "bytes [4033, +64)"},
		"far away":         {func(h *header) { h.addr = 1 << 63 }, rdma.ErrAccess, "which has 4096"},
		"sum wraps around": {func(h *header) { h.addr = ^uint64(0) - 10 }, rdma.ErrAccess, "which has 4096"},
		"early":            {func(h *header) { h.seq = 1 }, rdma.ErrPeerLost, "write 1 when 0 is expected"},
		"unknown type":     {func(h *header) { h.kind = 9 }, rdma.ErrPeerLost, "type 9"},
	} {
		for _, checksum := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				a, b, lostA, lostB := newWatchedEnds(t, Options{}, size)
				h := header{kind: frameWrite, flags: flagImm, key: b.mem.Remote().Key, length: 64, total: 64}
				if checksum {
					h.flags |= flagChecksum
					h.crc = sum
				}
				c.change(&h)
				forged(t, a, h, payload)
				atB := pollBoth(t, a, b, lostB)
				atA := pollBoth(t, a, b, lostA)
				for _, err := range []error{atA, atB} {
					assert.ErrorIs(t, err, rdma.ErrPeerLost)
					assert.ErrorIs(t, err, c.want)
				}
				assert.ErrorContains(t, atB, c.text)
				assert.ErrorContains(t, atA, "refused by the peer")
				assert.Equal(t, make([]byte, size), b.mem.Bytes())
				_, err := b.ep.Post([]rdma.Write{{}})
				assert.ErrorIs(t, err, c.want)
			})
		}
	}
}

// A payload that was damaged on the way is not announced; the message says where.
func TestDamagedPayload(t *testing.T) {
	a, b, lostA, lostB := newWatchedEnds(t, Options{}, 4096)
	payload := bytes.Repeat([]byte{0xee}, 64)
	forged(t, a, header{
		kind: frameWrite, flags: flagImm | flagChecksum, key: b.mem.Remote().Key, addr: 128, length: 64, total: 64,
		crc: crc32.Checksum(payload, castagnoli) ^ 1,
	}, payload)
	err := pollBoth(t, a, b, lostB)
	assert.ErrorContains(t, err, `64 bytes at 128 of region "test", write 0`)
	assert.ErrorContains(t, err, b.ep.label)
	assert.ErrorContains(t, pollBoth(t, a, b, lostA), "wrong payload checksum in write 0 to 128")
}

// A refusal reaches a peer whose own frame was half sent when it was decided.
func TestRefusalInTheMiddle(t *testing.T) {
	const size = 64 << 20
	a, b, lostA, lostB := newWatchedEnds(t, Options{}, size)
	// b writes until the socket is full, in the middle of a frame.
	n, err := b.ep.Post([]rdma.Write{{Local: b.mem.Bytes(), Region: b.mem, Remote: a.mem.Remote()}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	fill(t, b)
	forged(t, a, header{kind: frameWrite, key: 1, length: 1, total: 1}, []byte{1})
	assert.ErrorIs(t, pollBoth(t, a, b, lostB), rdma.ErrAccess)
	assert.ErrorIs(t, pollBoth(t, a, b, lostA), rdma.ErrAccess)
}

// What an end was sending when it refused something is announced as it was, if at all: here the last piece of a
// write, after which the refusal comes.
func TestRefusalAfterTheLastPiece(t *testing.T) {
	const size, writes = 600 << 10, 64
	for _, opts := range []Options{{}, {Sockets: 2}} {
		t.Run(fmt.Sprintf("sockets=%d", opts.Sockets), func(t *testing.T) {
			a, b, lostA, lostB := newWatchedEnds(t, opts, size*writes)
			src := touched(size)
			for i := range writes { // more than sockets hold
				_, err := b.ep.Post([]rdma.Write{{Local: src, Remote: a.mem.Remote(), Offset: uint64(i * size), Imm: uint32(i), HasImm: true, Signaled: true}})
				require.NoError(t, err)
			}
			fill(t, b)
			forged(t, a, header{kind: frameWrite, key: 1, length: 1, total: 1}, []byte{1})
			for len(lostB) == 0 {
				_, err := b.cq.Poll(b.cs[:])
				require.NoError(t, err)
			}
			clear(src) // which is the user's again
			for limit, got := time.Now().Add(20*time.Second), uint32(0); len(lostA) == 0; {
				require.True(t, time.Now().Before(limit), "no loss reported")
				_, err := b.cq.Poll(b.cs[:])
				require.NoError(t, err)
				n, err := a.cq.Poll(a.cs[:])
				require.NoError(t, err)
				for _, c := range a.cs[:n] {
					if c.Kind != rdma.Received {
						continue
					}
					require.Equal(t, got, c.Imm)
					at := int(got) * size
					require.Equal(t, size, bytes.Count(a.mem.Bytes()[at:at+size], []byte{1}), "right bytes of write %d", got)
					got++
				}
			}
			assert.ErrorIs(t, <-lostB, rdma.ErrAccess)
			assert.ErrorIs(t, <-lostA, rdma.ErrAccess)
		})
	}
}

// A write outside of what the peer has described that had to wait for others is refused by a later poll. The
// user is told then, too.
func TestRefusedWhenItsTurnComes(t *testing.T) {
	const size = 1 << 20
	a, b, lostA, lostB := newWatchedEnds(t, Options{}, size)
	for a.ep.cq.blocked.Load() == 0 {
		_, err := a.ep.Post([]rdma.Write{{Local: touched(size), Remote: b.mem.Remote()}})
		require.NoError(t, err)
	}
	_, err := a.ep.Post([]rdma.Write{{Local: touched(size), Remote: b.mem.Remote(), Offset: 1, Signaled: true}})
	require.NoError(t, err)
	require.Empty(t, lostA)
	assert.ErrorIs(t, pollBoth(t, a, b, lostB), rdma.ErrAccess)
	assert.ErrorIs(t, pollBoth(t, a, b, lostA), rdma.ErrAccess)
}

// FuzzStream gives the receiver arbitrary bytes. It must not panic, and must not write anywhere: the
// key is random.
func FuzzStream(f *testing.F) {
	good := header{kind: frameWrite, flags: flagImm, key: 1, length: 5, total: 5}
	f.Add(good.append(nil), false, uint8(1))
	f.Add((&header{kind: frameBye}).append(nil), true, uint8(1))
	f.Add((&header{kind: frameFail, imm: 2}).append(nil), true, uint8(1))
	f.Add((&header{kind: frameWrite, flags: flagImm}).append(nil), true, uint8(1))
	f.Add((&header{kind: frameLanded}).append(nil), true, uint8(1))
	f.Add((&header{kind: frameLanded, seq: 1}).append(nil), true, uint8(2))
	lost := header{kind: frameLost, imm: 2}
	f.Add(lost.append((&header{kind: frameWrite, flags: flagImm | flagAck}).append(nil)), true, uint8(2))
	f.Add((&header{kind: frameAgain, imm: 1}).append(lost.append(nil)), true, uint8(3))
	f.Add((&header{kind: frameWrite, seq: 7}).append((&header{kind: frameLost, imm: 6}).append(nil)), true, uint8(3))
	f.Add((&header{kind: frameLost, imm: 1}).append(nil), true, uint8(2))
	f.Add((&header{kind: frameLost, imm: 1 << 20}).append(nil), true, uint8(2))
	f.Fuzz(func(t *testing.T, stream []byte, fix bool, sockets uint8) {
		a, b := newEnds(t, Options{Sockets: 1 + int(sockets)%3}, 4096)
		stream = stream[:min(len(stream), 32<<10)]
		if fix { // right checksums let the contents through
			for at := 0; at+headerLen <= len(stream); at += headerLen {
				h := stream[at : at+headerLen]
				sum := crc32.Checksum(h[:44], castagnoli)
				h[44], h[45], h[46], h[47] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
			}
		}
		_, err := unix.Write(a.ep.lanes[0].fd, stream)
		if err != nil && len(stream) > 0 {
			t.Fatal(err)
		}
		require.NoError(t, a.ep.Close())
		for !b.ep.dead.Load() {
			_, err := b.cq.Poll(b.cs[:])
			require.NoError(t, err)
		}
		require.Equal(t, make([]byte, 4096), b.mem.Bytes())
	})
}

// A refusal that cannot be told, because the socket takes nothing any more, keeps nobody awake.
func TestNothingIsWantedOfAnEndedSocket(t *testing.T) {
	for _, errorFirst := range []bool{false, true} {
		a, b := newEnds(t, Options{}, 4096)
		tx, l := &a.ep.tx, a.ep.lanes[0]
		require.NoError(t, unix.Shutdown(l.fd, unix.SHUT_WR))
		if errorFirst {
			_, err := a.ep.Post([]rdma.Write{{Local: touched(8), Remote: b.mem.Remote(), HasImm: true}})
			require.NoError(t, err)
			require.Equal(t, unix.EPIPE, tx.stuck)
			require.True(t, tx.wants.Load(), "until a poll finds the cause")
		}
		a.ep.cq.mu.Lock()
		require.ErrorIs(t, l.refuse(failProtocol, errFrame), errFrame)
		a.ep.cq.mu.Unlock()
		require.False(t, tx.wants.Load(), "error first: %v", errorFirst)
	}
}

// A peer that says too early that writes have landed gets nothing of their memory any more, which is the user's.
func TestLandedTooEarly(t *testing.T) {
	const size = 2 * pieceShared
	a, b := newEnds(t, Options{Sockets: 2}, size)
	src := touched(size)
	tx := &a.ep.tx
	for a.ep.cq.blocked.Load() < 2 {
		_, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), HasImm: true, Signaled: true}})
		require.NoError(t, err)
	}
	forged(t, b, header{kind: frameLanded, seq: tx.next}, nil)
	for limit := time.Now().Add(10 * time.Second); tx.done < tx.next; {
		require.True(t, time.Now().Before(limit))
		_, err := a.cq.Poll(a.cs[:])
		require.NoError(t, err)
	}
	for _, l := range a.ep.lanes {
		if len(l.out.big) > 0 && l.out.bigSeq < tx.done {
			_, inside := hostmem.Offset(padding[:], l.out.big)
			require.True(t, inside, "socket %d goes on sending write %d", l.index, l.out.bigSeq)
		}
	}
}

package rdmatest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var writeTests = []test{
	{"WithImmediate", testWithImmediate},
	{"WithoutImmediateIsSilent", testWithoutImmediate},
	{"Sizes", testSizes},
	{"Offsets", testOffsets},
	{"Empty", testEmpty},
	{"Large", testLarge},
	{"TooLong", testTooLong},
	{"Inline", testInline},
	{"InlineTooLong", testInlineTooLong},
	{"Order", testOrder},
	{"LastWriterWins", testLastWriterWins},
	{"Autonomous", testAutonomous},
}

func testWithImmediate(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for i, imm := range []uint32{0, 1, 0x01020304, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		a.send(t, b, pattern(100+i, uint64(imm)), imm)
		b.send(t, a, pattern(300+i, uint64(imm)), ^imm)
	}
}

// A write without immediate tells the peer nothing, but is there when a later one says so.
func testWithoutImmediate(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	fill(a.mem.Bytes(), 3)
	first, second := a.write(b, 0, 5000), a.write(b, 5000, 3000)
	first.ID, second.ID = 1, 2
	last := rdma.Write{ID: 3, Imm: 9, HasImm: true, Signaled: true}
	require.NoError(t, a.post(first, second, last))
	got := b.takeReceived(t, 1)[0]
	assert.Equal(t, uint32(9), got.Imm)
	assert.Equal(t, a.mem.Bytes()[:8000], b.mem.Bytes()[:8000])
	for i, c := range a.takeWrote(t, 3) {
		assert.NoError(t, c.Err)
		assert.Equal(t, uint64(i+1), c.ID)
	}
	a.send(t, b, []byte("after"), 10)
	assert.Empty(t, b.received, "only writes with immediate are received")
}

func testSizes(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	limit := a.dev.Attr().MaxMessage
	for i, n := range []int{1, 2, 3, 4, 7, 8, 9, 63, 64, 65, 255, 256, 4095, 4096, 4097, 65535, 65536, 65537, memSize} {
		if n <= limit {
			a.send(t, b, pattern(n, uint64(i)), uint32(i))
		}
	}
}

// Exactly the described bytes change.
func testOffsets(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	fill(a.mem.Bytes(), 4)
	model := make([]byte, memSize)
	fill(model, 5)
	copy(b.mem.Bytes(), model)
	for _, s := range []struct{ from, to, n int }{
		{0, 0, 1}, {0, memSize - 1, 1}, {memSize - 1, 0, 1}, {1, 2, 3}, {8, 16, 8}, {9, 17, 8},
		{4, 8, 4}, {5, 9, 4}, {4095, 4097, 2}, {100, 63, 130}, {3, memSize - 5000, 5000}, {memSize - 77, memSize - 77, 77},
	} {
		require.NoError(t, a.post(rdma.Write{
			Local: a.mem.Bytes()[s.from : s.from+s.n], Region: a.mem,
			Remote: b.mem.Remote(), Offset: uint64(s.to), HasImm: true, Signaled: true,
		}))
		require.NoError(t, a.takeWrote(t, 1)[0].Err)
		b.takeReceived(t, 1)
		copy(model[s.to:], a.mem.Bytes()[s.from:s.from+s.n])
		require.Equal(t, model, b.mem.Bytes(), "%+v", s)
	}
}

// An empty write moves nothing and needs neither memory nor a remote region.
func testEmpty(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for _, w := range []rdma.Write{
		{},
		{Remote: b.mem.Remote()},
		{Remote: b.mem.Remote(), Offset: memSize},
		{Local: []byte{}, Inline: true},
		{Local: a.mem.Bytes()[:0], Region: a.mem, Remote: b.mem.Remote()},
	} {
		if w.Inline && a.dev.Attr().MaxInline == 0 {
			continue
		}
		w.ID, w.Imm, w.HasImm, w.Signaled = 5, 6, true, true
		require.NoError(t, a.post(w))
		require.Equal(t, rdma.Completion{Kind: rdma.Wrote, Endpoint: a.ep.ID(), ID: 5}, a.takeWrote(t, 1)[0])
		require.Equal(t, rdma.Completion{Kind: rdma.Received, Endpoint: b.ep.ID(), Imm: 6}, b.takeReceived(t, 1)[0])
	}
	// Without immediate it is only a local completion.
	require.NoError(t, a.post(rdma.Write{ID: 8, Signaled: true}))
	require.Equal(t, uint64(8), a.takeWrote(t, 1)[0].ID)
	require.Equal(t, make([]byte, memSize), b.mem.Bytes())
}

// testLarge writes the longest message, or 16 MiB.
func testLarge(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	n := min(a.dev.Attr().MaxMessage, 16<<20)
	src, err := a.dev.Alloc(n, "rdmatest large")
	require.NoError(t, err)
	dst, err := b.dev.Alloc(n, "rdmatest large")
	require.NoError(t, err)
	fill(src.Bytes(), 6)
	require.NoError(t, a.post(rdma.Write{Local: src.Bytes(), Region: src, Remote: dst.Remote(), HasImm: true, Signaled: true}))
	// Both ends are polled in turn: a provider may move data in its users' time.
	require.NoError(t, a.pollUntil("the large write", func() bool {
		_, err := b.poll()
		return err != nil || len(a.wrote) > 0 && len(b.received) > 0
	}))
	require.NoError(t, a.takeWrote(t, 1)[0].Err)
	b.takeReceived(t, 1)
	require.Equal(t, src.Bytes(), dst.Bytes())
}

// refused posts a write that is the caller's mistake. It fails in Post or in its completion.
func refused(t *testing.T, s *side, w rdma.Write) {
	t.Helper()
	w.Signaled = true
	n, err := s.ep.Post([]rdma.Write{w})
	if err != nil {
		assert.Zero(t, n)
		return
	}
	require.Equal(t, 1, n)
	assert.Error(t, s.takeWrote(t, 1)[0].Err)
}

func testTooLong(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	n := devs[0].Attr().MaxMessage
	if n >= 128<<20 {
		t.Skipf("MaxMessage is %d bytes: too long to test", n)
	}
	a, b := pairOn(t, devs[0], devs[1], rdma.EndpointOptions{})
	src, err := a.dev.Alloc(n+1, "rdmatest too long")
	require.NoError(t, err)
	dst, err := b.dev.Alloc(n+1, "rdmatest too long")
	require.NoError(t, err)
	refused(t, a, rdma.Write{Local: src.Bytes(), Region: src, Remote: dst.Remote()})
}

// Inline bytes are the caller's again when Post returns.
func testInline(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	limit := min(a.dev.Attr().MaxInline, memSize/4)
	if limit == 0 {
		t.Skip("no inline writes")
	}
	buf := make([]byte, limit)
	for i, n := range []int{1, limit / 2, limit} {
		fill(buf, uint64(i))
		want := append([]byte(nil), buf[:n]...)
		for k := range 4 {
			w := rdma.Write{Local: buf[:n], Inline: true, Remote: b.mem.Remote(), Offset: uint64(k * limit), Signaled: true, HasImm: k == 3}
			require.NoError(t, a.post(w))
			clear(buf[:n])
			copy(buf, want)
		}
		clear(buf)
		b.takeReceived(t, 1)
		for k := range 4 {
			assert.Equal(t, want, b.mem.Bytes()[k*limit:k*limit+n], "%d bytes, copy %d", n, k)
		}
		for _, c := range a.takeWrote(t, 4) {
			require.NoError(t, c.Err)
		}
	}
}

func testInlineTooLong(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	refused(t, a, rdma.Write{Local: make([]byte, a.dev.Attr().MaxInline+1), Inline: true, Remote: b.mem.Remote()})
}

// Writes of one endpoint land and complete in the order posted, whatever their sizes.
func testOrder(t *testing.T, f Factory) {
	const depth, rounds = 32, 20
	a, b := newPair(t, f, rdma.EndpointOptions{RecvDepth: depth})
	batch := min(depth, a.dev.Attr().MaxPosted)
	for round := range rounds {
		ws := make([]rdma.Write, batch)
		for i := range ws {
			seq := round*batch + i
			ws[i] = a.write(b, i*1000, []int{1000, 1, 8, 600}[seq%4])
			ws[i].ID, ws[i].Imm, ws[i].HasImm = uint64(seq), uint32(seq), true
		}
		require.NoError(t, a.post(ws...))
		for i, c := range b.takeReceived(t, batch) {
			require.Equal(t, uint32(round*batch+i), c.Imm)
		}
		for i, c := range a.takeWrote(t, batch) {
			require.NoError(t, c.Err)
			require.Equal(t, uint64(round*batch+i), c.ID)
		}
	}
}

// Of several writes to one place the last one posted stays; a big one does not overtake.
func testLastWriterWins(t *testing.T, f Factory) {
	const n, rounds = 16 << 10, 50
	a, b := newPair(t, f, rdma.EndpointOptions{})
	for round := range rounds {
		src := a.mem.Bytes()
		fill(src[:n], uint64(round))
		fill(src[n:n+8], uint64(round)+1000)
		big, small := a.write(b, 0, n), a.write(b, n, 8)
		small.Offset = 8 * uint64(round)
		small.HasImm = true
		require.NoError(t, a.post(big, small))
		b.takeReceived(t, 1)
		want := append([]byte(nil), src[:n]...)
		copy(want[8*round:], src[n:n+8])
		require.Equal(t, want, b.mem.Bytes()[:n], fmt.Sprintf("round %d", round))
		for _, c := range a.takeWrote(t, 2) {
			require.NoError(t, c.Err)
		}
	}
}

// Where writes go on by themselves, they arrive although neither end polls.
func testAutonomous(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	if !a.dev.Attr().Autonomous {
		t.Skip("writes need polls")
	}
	there := word(b.mem.Bytes(), 0)
	for i := range uint64(10) {
		word(a.mem.Bytes(), 0).Store(i + 1)
		w := a.write(b, 0, 8)
		w.Signaled = i%2 == 1
		require.NoError(t, a.post(w))
		eventually(t, "the write arrives", func() bool { return there.Load() == i+1 })
	}
	for _, c := range a.takeWrote(t, 5) {
		assert.NoError(t, c.Err)
	}
}

package rdmatest

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var deviceTests = []test{
	{"AttrIsFilled", testAttr},
	{"AllocIsZeroedAndAligned", testAlloc},
	{"SparseMemoryIsMemory", testSparse},
	{"RegionsHaveDifferentKeys", testKeys},
	{"RegisterIsTheCallersMemory", testRegister},
	{"CloseIsIdempotentAndFinal", testDeviceClose},
	{"CloseOfPartsIsIdempotent", testPartsClose},
}

func testAttr(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	a := d.Attr()
	assert.NotEmpty(t, a.Provider)
	assert.NotEmpty(t, a.Name)
	assert.Positive(t, a.Latency)
	assert.Positive(t, a.Bandwidth)
	assert.Positive(t, a.MaxMessage)
	assert.GreaterOrEqual(t, a.MaxPosted, 2)
	assert.GreaterOrEqual(t, a.MaxInline, 0)
	assert.LessOrEqual(t, a.MaxInline, a.MaxMessage)
	assert.Equal(t, a, d.Attr(), "attributes do not change")
}

func testAlloc(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	for _, n := range []int{1, 64, 4095, 4096, 4097, 1 << 20} {
		r, err := d.Alloc(n, "rdmatest alloc")
		require.NoError(t, err)
		b := r.Bytes()
		require.Len(t, b, n)
		assert.Zero(t, address(b)%uintptr(os.Getpagesize()), "%d bytes: not page-aligned", n)
		assert.Equal(t, make([]byte, n), b)
		assert.Equal(t, uint64(n), r.Remote().Len)
		fill(b, 1)
		require.NoError(t, r.Close())
	}
	// Memory that was used before comes back zeroed.
	r, err := d.Alloc(1<<20, "rdmatest again")
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 1<<20), r.Bytes())
}

// Memory without pages serves as any other.
func testSparse(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	sparse, ok := b.dev.(rdma.SparseDevice)
	if !ok {
		t.Skip("no memory without pages")
	}
	const n = 1<<20 + 1
	r, err := sparse.AllocSparse(n, "rdmatest sparse")
	require.NoError(t, err)
	require.Len(t, r.Bytes(), n)
	assert.Zero(t, address(r.Bytes())%uintptr(os.Getpagesize()))
	src := pattern(5000, 1)
	copy(a.mem.Bytes(), src)
	require.NoError(t, a.post(rdma.Write{Local: a.mem.Bytes()[:len(src)], Region: a.mem, Remote: r.Remote(),
		Offset: uint64(n - len(src)), HasImm: true, Signaled: true}))
	require.NoError(t, a.pollUntil("the write", func() bool {
		_, err := b.poll()
		return err != nil || len(a.wrote) > 0 && len(b.received) > 0
	}))
	require.NoError(t, a.takeWrote(t, 1)[0].Err)
	b.takeReceived(t, 1)
	assert.Equal(t, src, r.Bytes()[n-len(src):])
	assert.Equal(t, make([]byte, n-len(src)), r.Bytes()[:n-len(src)])
	if ls, ok := a.ep.(rdma.LoadStore); ok {
		m, err := ls.Map(t.Context(), r.Remote())
		require.NoError(t, err)
		assert.Equal(t, src, m[n-len(src):])
		m[7] = 1
		assert.Equal(t, byte(1), r.Bytes()[7])
	}
	require.NoError(t, r.Close())
}

func testKeys(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	seen := map[rdma.RemoteRegion]bool{}
	for range 32 {
		r, err := d.Alloc(4096, "rdmatest keys")
		require.NoError(t, err)
		rr := r.Remote()
		assert.Equal(t, rr, r.Remote(), "a description does not change")
		assert.False(t, seen[rr], "two open regions with the description %v", rr)
		seen[rr] = true
	}
}

func testRegister(t *testing.T, f Factory) {
	a, b := newPair(t, f, rdma.EndpointOptions{})
	src, dst := pattern(10000, 1), make([]byte, 10000)
	rs, err := a.dev.Register(src[1:9001]) // at no boundary
	require.NoError(t, err)
	rd, err := b.dev.Register(dst[3:9003])
	require.NoError(t, err)
	require.Same(t, &src[1], &rs.Bytes()[0])
	require.Same(t, &dst[3], &rd.Bytes()[0])
	require.Len(t, rd.Bytes(), 9000)
	target := rd
	if rd.Remote().Key == 0 { // peers cannot write to it: it is a source only
		target = b.mem
	}
	want := bytes.Clone(target.Bytes())
	copy(want[7:], src[11:8011])
	require.NoError(t, a.post(rdma.Write{
		Local: src[11:8011], Region: rs, Remote: target.Remote(), Offset: 7, HasImm: true, Signaled: true,
	}))
	require.NoError(t, a.takeWrote(t, 1)[0].Err)
	b.takeReceived(t, 1)
	require.Equal(t, want, target.Bytes())
	require.Equal(t, make([]byte, 3), dst[:3])
	require.Equal(t, make([]byte, 997), dst[9003:])
	require.NoError(t, rs.Close())
	require.NoError(t, rd.Close())
	assert.Equal(t, pattern(10000, 1), src)
}

func testDeviceClose(t *testing.T, f Factory) {
	a, _ := newPair(t, f, rdma.EndpointOptions{})
	require.NoError(t, a.dev.Close())
	require.NoError(t, a.dev.Close())
	_, err := a.dev.Alloc(64, "rdmatest")
	assert.ErrorIs(t, err, rdma.ErrClosed)
	_, err = a.dev.Register(make([]byte, 64))
	assert.ErrorIs(t, err, rdma.ErrClosed)
	_, err = a.dev.NewCQ(1, nil)
	assert.ErrorIs(t, err, rdma.ErrClosed)
	_, err = a.ep.Post([]rdma.Write{{Signaled: true}})
	assert.ErrorIs(t, err, rdma.ErrClosed)
	_, err = a.cq.Poll(make([]rdma.Completion, 1))
	assert.ErrorIs(t, err, rdma.ErrClosed)
	// What the device made may still be closed.
	assert.NoError(t, a.ep.Close())
	assert.NoError(t, a.mem.Close())
	assert.NoError(t, a.cq.Close())
	assert.Empty(t, a.lost.all(), "OnLost after a local Close")
}

func testPartsClose(t *testing.T, f Factory) {
	a, _ := newPair(t, f, rdma.EndpointOptions{})
	for range 2 {
		assert.NoError(t, a.ep.Close())
		assert.NoError(t, a.mem.Close())
		assert.NoError(t, a.cq.Close())
	}
	_, err := a.ep.Post([]rdma.Write{{Signaled: true}})
	assert.ErrorIs(t, err, rdma.ErrClosed)
	_, err = a.cq.Poll(make([]rdma.Completion, 1))
	assert.ErrorIs(t, err, rdma.ErrClosed)
}

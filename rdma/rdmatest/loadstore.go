package rdmatest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

var loadStoreTests = []test{
	{"MapShowsThePeersMemory", testMap},
	{"MapAgainIsTheSame", testMapAgain},
	{"MapWithWrongDescription", testMapRefused},
	{"MapOfClosedRegion", testMapClosedRegion},
	{"MapAfterClose", testMapAfterClose},
	{"MapHonoursContext", testMapContext},
	{"Populate", testPopulate},
	{"WritesShowInTheMapping", testWritesShowInMapping},
	{"StoresArePublishedByAtomics", testStoresArePublished},
}

// loadStorePair skips the test if the endpoints cannot map.
func loadStorePair(t *testing.T, f Factory) (a, b *side, am, bm rdma.LoadStore) {
	t.Helper()
	a, b = newPair(t, f, rdma.EndpointOptions{})
	am, ok := a.ep.(rdma.LoadStore)
	if !ok {
		t.Skip("no load/store access to the peer")
	}
	return a, b, am, b.ep.(rdma.LoadStore)
}

func testMap(t *testing.T, f Factory) {
	_, b, am, _ := loadStorePair(t, f)
	for _, n := range []int{1, 64, 5000, 1 << 20} {
		r, err := b.dev.Alloc(n, "rdmatest map")
		require.NoError(t, err)
		fill(r.Bytes(), uint64(n))
		m, err := am.Map(t.Context(), r.Remote())
		require.NoError(t, err)
		require.Len(t, m, n)
		assert.Zero(t, address(m)%64, "a mapping begins at a cache line")
		assert.Equal(t, pattern(n, uint64(n)), m)
		fill(m, uint64(n)+1)
		assert.Equal(t, pattern(n, uint64(n)+1), r.Bytes())
	}
}

func testMapAgain(t *testing.T, f Factory) {
	_, b, am, _ := loadStorePair(t, f)
	first, err := am.Map(t.Context(), b.mem.Remote())
	require.NoError(t, err)
	second, err := am.Map(t.Context(), b.mem.Remote())
	require.NoError(t, err)
	assert.Equal(t, address(first), address(second))
	assert.Len(t, second, len(first))
}

func testMapRefused(t *testing.T, f Factory) {
	for name, change := range map[string]func(*rdma.RemoteRegion){
		"key":     func(r *rdma.RemoteRegion) { r.Key++ },
		"no key":  func(r *rdma.RemoteRegion) { r.Key = 0 },
		"length":  func(r *rdma.RemoteRegion) { r.Len += 1 << 20 },
		"huge":    func(r *rdma.RemoteRegion) { r.Len = 1<<64 - 1 },
		"nothing": func(r *rdma.RemoteRegion) { *r = rdma.RemoteRegion{} },
	} {
		t.Run(name, func(t *testing.T) {
			_, b, am, _ := loadStorePair(t, f)
			r := b.mem.Remote()
			change(&r)
			_, err := am.Map(t.Context(), r)
			assert.ErrorIs(t, err, rdma.ErrAccess)
		})
	}
}

func testMapClosedRegion(t *testing.T, f Factory) {
	_, b, am, _ := loadStorePair(t, f)
	r := b.mem.Remote()
	require.NoError(t, b.mem.Close())
	_, err := am.Map(t.Context(), r)
	assert.ErrorIs(t, err, rdma.ErrAccess)
}

func testMapAfterClose(t *testing.T, f Factory) {
	a, b, am, _ := loadStorePair(t, f)
	require.NoError(t, a.ep.Close())
	_, err := am.Map(t.Context(), b.mem.Remote())
	assert.ErrorIs(t, err, rdma.ErrClosed)
	am.Signal() // harmless
}

func testMapContext(t *testing.T, f Factory) {
	_, b, am, _ := loadStorePair(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := am.Map(ctx, b.mem.Remote())
	assert.ErrorIs(t, err, context.Canceled)
}

// Memory that is made accessible keeps its bytes; only memory of a Map is.
func testPopulate(t *testing.T, f Factory) {
	a, b, am, _ := loadStorePair(t, f)
	m, ok := am.(rdma.Populator)
	if !ok {
		t.Skip("the provider maps accessible memory")
	}
	seen, err := m.Map(t.Context(), b.mem.Remote())
	require.NoError(t, err)
	copy(b.mem.Bytes(), pattern(3000, 1))
	require.NoError(t, m.Populate(seen[1000:2000]))
	require.NoError(t, m.Populate(seen))
	assert.Equal(t, pattern(3000, 1), seen[:3000])
	assert.ErrorIs(t, m.Populate(make([]byte, 10)), rdma.ErrAccess)
	require.NoError(t, a.ep.Close())
	assert.ErrorIs(t, m.Populate(seen), rdma.ErrClosed)
}

// Both ways into a region lead to the same bytes.
func testWritesShowInMapping(t *testing.T, f Factory) {
	a, b, am, bm := loadStorePair(t, f)
	seen, err := am.Map(t.Context(), b.mem.Remote())
	require.NoError(t, err)
	a.send(t, b, pattern(3000, 1), 1)
	assert.Equal(t, pattern(3000, 1), seen[:3000])
	back, err := bm.Map(t.Context(), a.mem.Remote())
	require.NoError(t, err)
	copy(back, pattern(2000, 2))
	b.send(t, a, pattern(100, 3), 2)
	assert.Equal(t, pattern(100, 3), a.mem.Bytes()[:100])
	assert.Equal(t, pattern(2000, 2)[100:], a.mem.Bytes()[100:2000])
}

// Plain stores into a mapping, followed by an atomic store, are seen by who loads that atomically:
// a ring of slots without any call.
func testStoresArePublished(t *testing.T, f Factory) {
	const slots, size = 8, 1024
	total := uint64(messages(4000))
	_, b, am, _ := loadStorePair(t, f)
	m, err := am.Map(t.Context(), b.mem.Remote())
	require.NoError(t, err)
	// The first two lines of b's memory: how many were written, how many were consumed.
	mWritten, mConsumed := word(m, 0), word(m, 64)
	written, consumed := word(b.mem.Bytes(), 0), word(b.mem.Bytes(), 64)
	deadline := time.Now().Add(Limit)
	wait := func(cond func() bool) error {
		for i := 0; !cond(); i++ {
			if i%1024 == 1023 && time.Now().After(deadline) {
				return fmt.Errorf("no progress: %d written, %d consumed", written.Load(), consumed.Load())
			}
			runtime.Gosched()
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		for i := range total {
			if err := wait(func() bool { return i-mConsumed.Load() < slots }); err != nil {
				done <- err
				return
			}
			fill(m[4096+i%slots*size:][:size], i)
			mWritten.Store(i + 1)
		}
		done <- nil
	}()
	want := make([]byte, size)
	for i := range total {
		require.NoError(t, wait(func() bool { return written.Load() > i }))
		fill(want, i)
		require.Equal(t, want, b.mem.Bytes()[4096+i%slots*size:][:size])
		consumed.Store(i + 1)
	}
	require.NoError(t, <-done)
}

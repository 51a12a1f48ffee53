package hostmem

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	return len(files)
}

func TestAllocIsZeroedAlignedAndAccounted(t *testing.T) {
	for _, n := range []int{0, 1, PageSize - 1, PageSize, PageSize + 1, 5 << 20} {
		b, err := Alloc(n, "test ring")
		require.NoError(t, err)
		require.Len(t, b.Bytes(), n)
		require.Equal(t, n, cap(b.Bytes()), "no way to reach the rest of the page by append")
		require.True(t, bytes.Equal(b.Bytes(), make([]byte, n)), "zeroed")
		if n > 0 {
			require.Zero(t, uintptr(unsafe.Pointer(&b.Bytes()[0]))%uintptr(PageSize), "page-aligned")
		}
		pages := max(1, (n+PageSize-1)/PageSize) * PageSize
		require.Equal(t, []Stat{{Anonymous, "test ring", 1, int64(pages)}}, Stats())
		require.NoError(t, b.Close())
		require.Empty(t, Stats())
		require.Nil(t, b.Bytes())
		require.NoError(t, b.Close(), "the second Close does nothing")
		require.Empty(t, Stats())
	}
}

func TestImpossibleSizes(t *testing.T) {
	for _, n := range []int{-1, maxBytes + 1} {
		_, err := Alloc(n, "test")
		require.ErrorContains(t, err, "impossible")
		_, err = AllocShared(n, "test")
		require.ErrorContains(t, err, "impossible")
		_, err = MapShared(0, n, "test")
		require.ErrorContains(t, err, "impossible")
	}
}

func TestConcurrentCloseUnmapsOnce(t *testing.T) {
	other, err := Alloc(1, "other")
	require.NoError(t, err)
	for range 50 {
		b, err := Alloc(PageSize, "test")
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { require.NoError(t, b.Close()) })
		}
		wg.Wait()
		require.Equal(t, []Stat{{Anonymous, "other", 1, int64(PageSize)}}, Stats())
	}
	other.Bytes()[0] = 1 // still there
	require.NoError(t, other.Close())
}

func TestWords(t *testing.T) {
	b, err := Alloc(64, "test")
	require.NoError(t, err)
	defer b.Close()
	m := b.Bytes()
	Word64(m, 56).Store(0x0102030405060708)
	require.EqualValues(t, 0x0102030405060708, Words64(m, 40, 3)[2].Load())
	Word32(m, 4).Add(7)
	require.EqualValues(t, 7, m[4])
	require.Nil(t, Words64(m, 64, 0))
	for name, bad := range map[string]func(){
		"past the end":     func() { Word64(m, 57) },
		"at the end":       func() { Word32(m, 64) },
		"negative":         func() { Word64(m, -8) },
		"misaligned 64":    func() { Word64(m, 4) },
		"misaligned 32":    func() { Word32(m, 2) },
		"misaligned base":  func() { Word64(m[1:], 0) },
		"too many words":   func() { Words64(m, 8, 8) },
		"words, huge n":    func() { Words64(m, 0, 1<<61) },
		"words negative n": func() { Words64(m, 0, -1) },
	} {
		require.Panics(t, bad, name)
	}
}

func TestOffsetAgreesWithSlicing(t *testing.T) {
	backing := make([]byte, 200)
	rapid.Check(t, func(t *rapid.T) {
		span := func(label string) (lo, hi int) {
			lo = rapid.IntRange(0, len(backing)).Draw(t, label+" from")
			return lo, rapid.IntRange(lo, len(backing)).Draw(t, label+" to")
		}
		ol, oh := span("outer")
		il, ih := span("inner")
		off, inside := Offset(backing[ol:oh], backing[il:ih])
		switch {
		case il == ih:
			require.True(t, inside)
			require.Zero(t, off)
		case il >= ol && ih <= oh:
			require.True(t, inside)
			require.Equal(t, il-ol, off)
		default:
			require.False(t, inside)
		}
	})
	_, inside := Offset(nil, backing)
	require.False(t, inside)
}

func TestSize(t *testing.T) {
	require.Equal(t, "0 B", Size(0))
	require.Equal(t, "1023 B", Size(1023))
	require.Equal(t, "1.5 KiB", Size(1536))
	require.Equal(t, "16 EiB", Size(uint64(1<<64-1)))
}

func TestNothingIsLeftOpen(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc")
	}
	before := openFiles(t)
	for range 10 {
		b, err := AllocShared(3*PageSize, "test")
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
	require.Equal(t, before, openFiles(t))
}

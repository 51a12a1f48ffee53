package hostmem

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSharedBlocksShareBytes(t *testing.T) {
	for _, n := range []int{1, PageSize, 3 << 20} {
		a, err := AllocShared(n, "test")
		require.NoError(t, err)
		fd, err := a.Dup()
		require.NoError(t, err)
		b, err := MapShared(fd, n, "test peer")
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		a.Bytes()[n-1] = 42
		require.Equal(t, byte(42), b.Bytes()[n-1])
		require.NoError(t, a.CloseFile())
		_, err = a.Dup()
		require.ErrorIs(t, err, ErrUnsupported)
		require.NoError(t, a.Close())
		require.Equal(t, byte(42), b.Bytes()[n-1], "pages live as long as a mapping")
		require.Len(t, Stats(), 1)
		require.Equal(t, Mapped, Stats()[0].Kind)
		require.NoError(t, b.Close())
		_, err = a.Dup()
		require.ErrorIs(t, err, ErrClosed)
	}
}

// present reads from the kernel's page map which pages of b are accessible without a fault (proc_pid_pagemap(5)).
func present(t *testing.T, b []byte) (out []bool) {
	f, err := os.Open("/proc/self/pagemap")
	require.NoError(t, err)
	defer f.Close()
	words := make([]byte, 8*(len(b)/PageSize))
	_, err = f.ReadAt(words, int64(Addr(b))/int64(PageSize)*8)
	require.NoError(t, err)
	for i := 7; i < len(words); i += 8 {
		out = append(out, words[i]&0x80 != 0)
	}
	return out
}

// A mapped block costs nothing where nobody goes.
func TestPopulatePart(t *testing.T) {
	a, err := AllocShared(8*PageSize, "test")
	require.NoError(t, err)
	defer a.Close()
	require.NotContains(t, present(t, a.Bytes()), false, "who makes it has it all")
	fd, err := a.Dup()
	require.NoError(t, err)
	defer unix.Close(fd)
	b, err := MapShared(fd, 8*PageSize, "test peer")
	require.NoError(t, err)
	require.NotContains(t, present(t, b.Bytes()), true)
	a.Bytes()[3*PageSize] = 5
	require.NoError(t, b.Populate(2*PageSize+100, PageSize))
	require.Equal(t, []bool{false, false, true, true, false, false, false, false}, present(t, b.Bytes()))
	require.EqualValues(t, 5, b.Bytes()[3*PageSize])
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Populate(0, 1), ErrClosed)
}

func TestSharedFileCannotBeResizedAndIsNotInherited(t *testing.T) {
	b, err := AllocShared(2*PageSize, "test")
	require.NoError(t, err)
	defer b.Close()
	fd, err := b.Dup()
	require.NoError(t, err)
	defer unix.Close(fd)
	require.ErrorIs(t, unix.Ftruncate(fd, int64(PageSize)), unix.EPERM)
	require.ErrorIs(t, unix.Ftruncate(fd, int64(3*PageSize)), unix.EPERM)
	for _, f := range []int{fd, b.m.fd} {
		flags, err := unix.FcntlInt(uintptr(f), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC)
	}
}

// Memory that is reserved takes no page before it is touched, by whomever.
func TestReservedMemoryHasNoPages(t *testing.T) {
	a, err := ReserveShared(8*PageSize, "test")
	require.NoError(t, err)
	defer a.Close()
	b, err := MapShared(a.m.fd, 8*PageSize, "test peer")
	require.NoError(t, err)
	defer b.Close()
	b.Bytes()[5*PageSize] = 42
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(a.m.fd, &st))
	require.EqualValues(t, PageSize, st.Blocks*512)
	require.Equal(t, byte(42), a.Bytes()[5*PageSize])

	private, err := Reserve(4*PageSize, "test")
	require.NoError(t, err)
	defer private.Close()
	private.Bytes()[3*PageSize] = 1
	require.Equal(t, []bool{false, false, false, true}, present(t, private.Bytes()))
}

// Where memory is committed strictly, a page of a memory file that cannot be had is a SIGBUS: they come at once.
func TestReservedMemoryIsThereWhereTheKernelCommitsNoMore(t *testing.T) {
	for mode, pages := range map[string]int{"0\n": 0, "1\n": 0, "2\n": 8, "": 0} {
		root := fstest.MapFS{"proc/sys/vm/overcommit_memory": &fstest.MapFile{Data: []byte(mode)}}
		b, fd, err := reserveSharedOn(root, 8*PageSize)
		require.NoError(t, err)
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &st))
		require.EqualValues(t, pages*PageSize, st.Blocks*512, "mode %q", mode)
		require.NoError(t, unmap(b))
		require.NoError(t, closeFile(fd))
	}
}

// A peer may send any descriptor: none of these may be mapped, least of all one that can shrink.
func TestForeignFilesAreRefused(t *testing.T) {
	memfd := func(flags int, size int64, seal int) int {
		fd, err := unix.MemfdCreate("test", flags|unix.MFD_CLOEXEC)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, unix.Ftruncate(fd, size))
		if seal != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
			require.NoError(t, err)
		}
		return fd
	}
	size := int64(PageSize)
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(size))
	for name, fd := range map[string]int{
		"not sealable":  memfd(0, size, 0),
		"not sealed":    memfd(unix.MFD_ALLOW_SEALING, size, 0),
		"may shrink":    memfd(unix.MFD_ALLOW_SEALING, size, unix.F_SEAL_GROW|unix.F_SEAL_SEAL),
		"too short":     memfd(unix.MFD_ALLOW_SEALING, size-1, seals),
		"too long":      memfd(unix.MFD_ALLOW_SEALING, 2*size, seals),
		"ordinary file": int(file.Fd()),
	} {
		_, err := MapShared(fd, int(size), "test")
		require.ErrorIs(t, err, ErrBadFile, name)
	}
	_, err = MapShared(-1, int(size), "test")
	require.ErrorIs(t, err, unix.EBADF)
	require.Empty(t, Stats())
}

func TestWindow(t *testing.T) {
	w, err := NewWindow()
	require.NoError(t, err)
	word := Word64(w.Bytes(), 64)
	require.Zero(t, word.Load())
	for i := range uint64(3) {
		b, err := AllocShared(1, "test")
		require.NoError(t, err)
		theirs := Word64(b.m.pages, 64)
		theirs.Store(i + 5)
		require.NoError(t, w.Show(b.m.fd))
		require.Equal(t, i+5, word.Load())
		word.Store(9)
		require.EqualValues(t, 9, theirs.Load())
		require.NoError(t, b.Close())
		word.Store(10) // still there
		if i == 1 {
			require.NoError(t, w.Blank())
			require.Zero(t, word.Load())
		}
	}
	b, err := AllocShared(2*PageSize, "test")
	require.NoError(t, err)
	require.ErrorIs(t, w.Show(b.m.fd), ErrBadFile)
	require.EqualValues(t, 10, word.Load(), "as before")
	require.NoError(t, b.Close())
	account(Mapped, windowPurpose, -1, -PageSize) // other tests expect empty accounts
	require.NoError(t, unmap(w.page))
}

func TestTooMuchMemoryIsRefusedBeforeItIsTouched(t *testing.T) {
	room := available(os.DirFS("/"))
	require.NotZero(t, room.bytes)
	want := int(min(4*room.bytes, maxBytes))
	for _, alloc := range []func(int, string) (*Block, error){Alloc, AllocShared} {
		_, err := alloc(want, "slots")
		require.ErrorIs(t, err, ErrNoMemory)
		require.ErrorContains(t, err, " for slots: not enough memory: ")
	}
	require.Empty(t, Stats())
}

// Kernels before 5.14 cannot populate; their way must give the same memory.
func TestFillWithoutPopulate(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	n := 40 << 20 // three pieces
	require.NoError(t, unix.Ftruncate(fd, int64(n)))
	require.NoError(t, allocateFile(fd, n))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	require.EqualValues(t, n, st.Blocks*512, "every page is there")
}

func TestAvailable(t *testing.T) {
	const gib = 1 << 30
	file := func(lines ...string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
	}
	meminfo := file("MemTotal: 33554432 kB", "MemFree: 1 kB", "MemAvailable: 16777216 kB")
	for name, c := range map[string]struct {
		fs   fstest.MapFS
		want room
	}{
		"nothing to read": {nil, room{1<<64 - 1, "an unknown machine"}},
		"no cgroup":       {fstest.MapFS{"proc/meminfo": meminfo}, room{16 * gib, "this machine"}},
		"version 2, the parent is tighter": {fstest.MapFS{
			"proc/meminfo":                           meminfo,
			"proc/self/cgroup":                       file("0::/job/rank3"),
			"sys/fs/cgroup/job/memory.max":           file("4294967296"),
			"sys/fs/cgroup/job/memory.current":       file("3221225472"),
			"sys/fs/cgroup/job/memory.stat":          file("anon 12", "inactive_file 536870912"),
			"sys/fs/cgroup/job/rank3/memory.max":     file("3221225472"),
			"sys/fs/cgroup/job/rank3/memory.current": file("1024"),
			"sys/fs/cgroup/job/rank3/memory.stat":    file("inactive_file 99999999"),
			"sys/fs/cgroup/memory.max":               file("1"), // without memory.current it says nothing
		}, room{gib + gib/2, "memory cgroup /job"}},
		"version 2, unlimited": {fstest.MapFS{
			"proc/meminfo":                 meminfo,
			"proc/self/cgroup":             file("0::/job"),
			"sys/fs/cgroup/job/memory.max": file("max"),
		}, room{16 * gib, "this machine"}},
		"version 2, over the limit": {fstest.MapFS{
			"proc/meminfo":                     meminfo,
			"proc/self/cgroup":                 file("0::/job"),
			"sys/fs/cgroup/job/memory.max":     file("1000"),
			"sys/fs/cgroup/job/memory.current": file("2000"),
		}, room{0, "memory cgroup /job"}},
		"version 1, in a container whose path is not mounted": {fstest.MapFS{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": file("5:cpu,memory:/docker/abc", "4:pids:/x", "0::/"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("1073741824"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes": file("73741824"),
			"sys/fs/cgroup/memory/memory.stat":           file("total_inactive_file 0"),
		}, room{1000000000, "memory cgroup /"}},
		"version 1, unlimited": {fstest.MapFS{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": file("5:memory:/"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes": file("1"),
		}, room{16 * gib, "this machine"}},
		"rubbish": {fstest.MapFS{
			"proc/meminfo":             file("MemAvailable:", "MemAvailable: x kB"),
			"proc/self/cgroup":         file("", "::", "0::", "memory", "3:memory:../../.."),
			"sys/fs/cgroup/memory.max": file("-1"),
		}, room{1<<64 - 1, "an unknown machine"}},
	} {
		require.Equal(t, c.want, available(c.fs), name)
	}
}

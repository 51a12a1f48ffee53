//go:build linux

package shm

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// newConnPair returns both ends of a connection within this process.
func newConnPair(t *testing.T) (ends [2]*conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		raw, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		ends[i], err = newConn(raw.(*net.UnixConn))
		require.NoError(t, err)
		t.Cleanup(ends[i].close)
	}
	return ends
}

func TestDescriptorsOfABadMessageAreClosed(t *testing.T) {
	ends := newConnPair(t)
	good := encodeMessage(message{kind: opened})
	for name, c := range map[string]struct {
		bytes []byte
		fds   int
	}{
		"rubbish":              {[]byte("rubbish"), 2},
		"too long":             {append(good, 0), 1},
		"too many descriptors": {good, 8},
	} {
		before := openFiles(t)
		_, _, err := ends[0].unix.WriteMsgUnix(c.bytes, unix.UnixRights(make([]int, c.fds)...), nil)
		require.NoError(t, err)
		_, fds, err := ends[1].receive(2)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, io.EOF, name)
		require.Empty(t, fds, name)
		require.Equal(t, before, openFiles(t), name)
	}
	ends[0].hangUp(codeOK)
	m, _, err := ends[1].receive(2)
	require.NoError(t, err)
	require.Equal(t, bye, m.kind)
	_, _, err = ends[1].receive(2)
	require.ErrorIs(t, err, io.EOF)
}

// The owner checks the length itself, whatever the asking side would check.
func TestOwnerRefusesALengthBeyondTheRegion(t *testing.T) {
	a, b := newPair(t)
	r := b.alloc(t, 100).Remote()
	r.Len++
	_, err := a.Map(soon(t), r)
	require.ErrorIs(t, err, rdma.ErrAccess)
	require.ErrorContains(t, err, "refuses the region")
}

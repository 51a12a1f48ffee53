//go:build linux

package shm

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
)

// What a peer's process has anywhere can be read, as long as it is there.
func TestAttach(t *testing.T) {
	s := newSide(t, rdma.EndpointOptions{})
	mem := s.alloc(t, childMemory)
	c := startChild(t, "lend", nil)
	c.meet(t, s, mem)
	addr := hostmem.Word64(mem.Bytes(), 0)
	require.Eventually(t, func() bool { return addr.Load() != 0 }, 10*time.Second, time.Millisecond)
	want := bytes.Repeat([]byte{42}, lentBytes)
	got := make([]byte, lentBytes)
	require.NoError(t, s.Attach(got, addr.Load()))
	require.Equal(t, want, got)
	require.NoError(t, s.Attach(got[:1], addr.Load()+lentBytes-1))
	require.NoError(t, s.Attach(nil, 0))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Attach(got, addr.Load()) }))

	err := s.Attach(got, 4096)
	require.ErrorIs(t, err, rdma.ErrAccess)
	require.NotErrorIs(t, err, rdma.ErrPeerLost)
	require.ErrorContains(t, err, "bad address")

	require.NoError(t, c.Process.Signal(syscall.SIGSTOP)) // which keeps nobody from reading
	require.NoError(t, s.Attach(got, addr.Load()))
	require.NoError(t, c.Process.Signal(syscall.SIGKILL))
	require.NoError(t, wait(c))
	require.ErrorIs(t, s.Attach(got, addr.Load()), rdma.ErrPeerLost)
	require.NoError(t, s.Endpoint.Close())
	require.ErrorIs(t, s.Attach(got, addr.Load()), rdma.ErrClosed)
}

// wait returns when a killed child is gone.
func wait(c *child) error {
	_, err := c.Process.Wait()
	return err
}

// A peer that has closed its end may have let go of its memory.
func TestAttachToWhoHasClosed(t *testing.T) {
	a, b := newPair(t)
	mem := make([]byte, 100)
	addr := uint64(hostmem.Addr(mem))
	require.NoError(t, a.Attach(make([]byte, 100), addr))
	require.NoError(t, b.Endpoint.Close())
	require.ErrorIs(t, a.Attach(make([]byte, 100), addr), rdma.ErrPeerLost)
}

//go:build linux && (amd64 || arm64) && !noverbs

package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

// couple connects an endpoint to one of another device on the same port.
func couple(t *testing.T, d, peer rdma.Device) (ep rdma.Endpoint, cq, peerCQ rdma.CQ) {
	t.Helper()
	make := func(d rdma.Device) (rdma.Endpoint, rdma.CQ) {
		cq, err := d.NewCQ(64, nil)
		require.NoError(t, err)
		ep, err := d.NewEndpoint(cq, rdma.EndpointOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, errors.Join(ep.Close(), cq.Close())) })
		return ep, cq
	}
	ep, cq = make(d)
	theirs, peerCQ := make(peer)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { return ep.Connect(ctx, theirs.Address()) })
	g.Go(func() error { return theirs.Connect(ctx, ep.Address()) })
	require.NoError(t, g.Wait())
	return ep, cq, peerCQ
}

// next polls two queues until the first has a completion of the kind.
func next(t *testing.T, kind rdma.Kind, cq, other rdma.CQ) rdma.Completion {
	t.Helper()
	cs := make([]rdma.Completion, 1)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		for _, q := range []rdma.CQ{cq, other} {
			n, err := q.Poll(cs)
			require.NoError(t, err)
			if n > 0 && q == cq && cs[0].Kind == kind {
				return cs[0]
			}
		}
	}
	require.FailNow(t, "no completion")
	return rdma.Completion{}
}

// writeInto writes a message to a region of peer's from d, and says what happened.
func writeInto(t *testing.T, d, peer rdma.Device, to rdma.RemoteRegion, offset int, message string) error {
	t.Helper()
	ep, cq, peerCQ := couple(t, d, peer)
	src, err := d.Alloc(4096, "test")
	require.NoError(t, err)
	defer src.Close()
	copy(src.Bytes(), message)
	n, err := ep.Post([]rdma.Write{{
		ID: 7, Local: src.Bytes()[:len(message)], Region: src, Remote: to, Offset: uint64(offset), Imm: 42, HasImm: true, Signaled: true,
	}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	if c := next(t, rdma.Wrote, cq, cq); c.Err != nil {
		return c.Err
	}
	require.EqualValues(t, 42, next(t, rdma.Received, peerCQ, cq).Imm)
	return nil
}

// A dma-buf is written by a peer at the address where its owner has it, and no further; a file in memory
// stands for it.
func TestDeviceMemory(t *testing.T) {
	fake := control(t)
	name := ports(t)[0]
	open := func() *verbs.Device {
		d := openPort(t, name, verbs.Options{})
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	before := fake("fake_regions")
	fd, err := unix.MemfdCreate("buffer", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "buffer")
	defer file.Close()
	require.NoError(t, file.Truncate(1<<16))

	owner, writer := open(), open()
	const addr = 0x7e00_0000_0100
	r, err := owner.RegisterDMABuf(fd, 0x100, addr, 1000)
	require.NoError(t, err)
	require.Nil(t, r.Bytes())
	require.EqualValues(t, addr, r.Remote().Addr)
	require.EqualValues(t, 1000, r.Remote().Len)
	require.NoError(t, writeInto(t, writer, owner, r.Remote(), 50, "over the network"))
	b := make([]byte, 1<<16)
	_, err = file.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, 0x100+50, bytes.Index(b, []byte("over the network")))

	require.ErrorIs(t, writeInto(t, writer, owner, r.Remote(), 990, "over the network"), rdma.ErrAccess)
	ep, _, _ := couple(t, owner, writer)
	_, err = ep.Post([]rdma.Write{{Local: []byte("x"), Region: r, Remote: r.Remote(), Signaled: true}})
	require.ErrorContains(t, err, "not inside its region")
	require.NoError(t, r.Close())
	require.ErrorIs(t, writeInto(t, writer, owner, r.Remote(), 50, "late"), rdma.ErrAccess)

	for _, errno := range []unix.Errno{unix.EOPNOTSUPP, unix.EINVAL} {
		fake("fake_dmabuf", uintptr(errno))
		_, err = owner.RegisterDMABuf(fd, 0, addr, 1000)
		require.ErrorIs(t, err, errno)
		require.ErrorContains(t, err, "register dma-buf of 1000 bytes on "+name)
		require.Equal(t, errno == unix.EOPNOTSUPP, bytes.Contains([]byte(err.Error()), []byte("takes no dma-buf")))
	}
	fake("fake_dmabuf", 0)
	_, err = owner.RegisterPeerMemory(addr, 1000)
	require.ErrorContains(t, err, "modprobe nvidia-peermem")
	_, err = owner.RegisterPeerMemory(addr, 0)
	require.ErrorContains(t, err, "no bytes")
	last, err := owner.RegisterDMABuf(fd, 0, addr, 1000)
	require.NoError(t, err)
	require.NoError(t, owner.Close())
	require.NoError(t, last.Close())
	_, err = owner.RegisterDMABuf(fd, 0, addr, 1000)
	require.ErrorIs(t, err, rdma.ErrClosed)
	require.NoError(t, writer.Close())
	require.Equal(t, before, fake("fake_regions"), "registrations left")
}

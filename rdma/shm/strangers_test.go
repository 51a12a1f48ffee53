//go:build linux

package shm

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func (d *Device) dialRaw(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: d.name.path(), Net: "unixpacket"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await reads until the other side closes, which it must do by itself.
func awaitEnd(t *testing.T, c *net.UnixConn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	for {
		n, err := c.Read(make([]byte, 4096))
		if n == 0 || err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the stranger is still connected")
			return
		}
	}
}

// Anyone who reads /proc/net/unix can dial. Whatever strangers say or do not say, they are dropped,
// leave no descriptor behind, and peers still connect.
func TestStrangersAreDropped(t *testing.T) {
	a, b := newSide(t, rdma.EndpointOptions{}), newSide(t, rdma.EndpointOptions{})
	before := openFiles(t)
	noise := map[string]func(c *net.UnixConn){
		"silent":      func(*net.UnixConn) {},
		"hangs up":    func(c *net.UnixConn) { _ = c.Close() },
		"rubbish":     func(c *net.UnixConn) { _, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n")) },
		"empty":       func(c *net.UnixConn) { _, _ = c.Write(nil) },
		"long":        func(c *net.UnixConn) { _, _ = c.Write(make([]byte, 100_000)) },
		"out of turn": func(c *net.UnixConn) { _, _ = c.Write(encodeMessage(message{kind: mapRegion, key: 1})) },
		"no token": func(c *net.UnixConn) {
			_, _ = c.Write(encodeMessage(message{kind: open, endpoint: a.id, from: 1}))
		},
		"descriptors": func(c *net.UnixConn) {
			ask := message{kind: open, endpoint: a.id, from: 1}
			_, _, _ = c.WriteMsgUnix(encodeMessage(ask), unix.UnixRights(0, 0, 0, 0), nil)
		},
	}
	const each = 20 // more than maxHandshakes in all
	var conns []*net.UnixConn
	for name, make := range noise {
		for range each {
			c := a.dev.dialRaw(t)
			make(c)
			if name != "hangs up" {
				conns = append(conns, c)
			}
		}
	}
	ctx := soon(t)
	require.NoError(t, b.Connect(ctx, a.Address()))
	require.NoError(t, a.Connect(ctx, b.Address()))
	for _, c := range conns {
		awaitEnd(t, c)
		_ = c.Close()
	}
	require.Eventually(t, func() bool { return a.dev.strangers.Load() == uint64(each*len(noise)) }, 20*time.Second, time.Millisecond)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Eventually(t, func() bool { return openFiles(t) < before }, 20*time.Second, time.Millisecond,
		"each side has given back its ring, and nothing is left")
	require.Zero(t, b.dev.strangers.Load())
}

// The name of a socket may be taken by someone else when its owner is gone. Without the token
// nothing is believed.
func TestImpostorIsRefused(t *testing.T) {
	a, gone := newSide(t, rdma.EndpointOptions{}), newSide(t, rdma.EndpointOptions{})
	addr := gone.Address()
	require.NoError(t, gone.dev.Close())
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: gone.dev.name.path(), Net: "unixpacket"})
	require.NoError(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			done <- err
			return
		}
		defer c.Close()
		_, _ = c.Write(encodeMessage(message{kind: hello}))
		_, _ = c.Read(make([]byte, 4096))
		_, _, err = c.WriteMsgUnix(encodeMessage(message{kind: opened, depth: 64}), unix.UnixRights(0, 0), nil)
		done <- err
		_, _ = c.Read(make([]byte, 1))
	}()
	before := openFiles(t)
	err = a.Connect(soon(t), addr)
	require.ErrorIs(t, err, rdma.ErrAccess)
	require.ErrorContains(t, err, "does not know the endpoint's token")
	require.NoError(t, <-done)
	require.Eventually(t, func() bool { return openFiles(t) <= before }, 20*time.Second, time.Millisecond)
}

// Two dialers with the same address: one is the peer, the other hears that the place is taken.
func TestSecondDialerIsRefused(t *testing.T) {
	a, b, c := newSide(t, rdma.EndpointOptions{}), newSide(t, rdma.EndpointOptions{}), newSide(t, rdma.EndpointOptions{})
	ctx := soon(t)
	require.NoError(t, b.Connect(ctx, a.Address()))
	require.ErrorContains(t, c.Connect(ctx, a.Address()), "paired with another one")
	require.ErrorContains(t, a.Connect(ctx, c.Address()), "do not agree")
	require.NoError(t, a.Connect(ctx, b.Address()))
	require.ErrorContains(t, a.Connect(ctx, b.Address()), "already")
}

// The budget that the package comment states.
func TestDescriptorsOfAnEndpoint(t *testing.T) {
	da, db := newDevice(t), newDevice(t)
	qa, qb := newQueue(t, da, nil), newQueue(t, db, nil)
	_, _ = qa.Poll(nil)
	before := openFiles(t)
	const pairs = 10
	for range pairs {
		a, err := da.NewEndpoint(qa, rdma.EndpointOptions{})
		require.NoError(t, err)
		b, err := db.NewEndpoint(qb, rdma.EndpointOptions{})
		require.NoError(t, err)
		ctx := soon(t)
		require.NoError(t, a.Connect(ctx, b.Address()))
		require.NoError(t, b.Connect(ctx, a.Address()))
	}
	require.Eventually(t, func() bool { return openFiles(t) == before+2*2*pairs }, 20*time.Second, time.Millisecond)
	r, err := da.Alloc(1, "test")
	require.NoError(t, err)
	require.Equal(t, before+2*2*pairs+1, openFiles(t))
	require.NoError(t, r.Close())
}

func TestClosedEndpointStaysWhileItsQueueIsRead(t *testing.T) {
	s := newSide(t, rdma.EndpointOptions{})
	require.Contains(t, s.queue.read(), s.Endpoint)
	require.NoError(t, s.Close())
	s.queue.sweep() // as another endpoint's Close does
	require.False(t, s.use.over())
	s.queue.done()
	require.True(t, s.use.over())
}

func TestLeaseFreesOnceTheLastUserIsDone(t *testing.T) {
	freed := 0
	l := lease{free: func() { freed++ }}
	require.True(t, l.acquire())
	require.True(t, l.acquire())
	l.close()
	require.False(t, l.over())
	l.release()
	require.Zero(t, freed)
	require.False(t, l.acquire())
	require.Zero(t, freed)
	l.release()
	require.Equal(t, 1, freed)
	require.True(t, l.over())
}

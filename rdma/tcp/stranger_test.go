//go:build linux

package tcp

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

// noise connects to addr over and over, as port scanners, other services and old jobs do, until
// ctx ends.
func noise(ctx context.Context, addr string, what []byte, wg *sync.WaitGroup) {
	wg.Go(func() {
		for ctx.Err() == nil {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
			if err != nil {
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			_, _ = c.Write(what)
			if len(what) > 0 {
				_ = c.(*net.TCPConn).CloseWrite()
			}
			_, _ = io.Copy(io.Discard, c) // until it is dropped
			_ = c.Close()
			stop()
		}
	})
}

// Noise on the listening port neither stops nor delays a pairing for long, and is dropped.
func TestStrangers(t *testing.T) {
	a, b := newEnd(t, Options{}, 4096), newEnd(t, Options{}, 4096)
	old := newEnd(t, Options{}, 4096)
	stale := (&hello{to: old.ep.name, from: a.ep.name, sockets: 1}).encode() // of a device of another job
	random := make([]byte, 64<<10)
	_, _ = rand.Read(random)
	guess := append((&hello{to: a.ep.name, from: b.ep.name, sockets: 1}).encode(), random...) // the name is no secret
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, x := range []*end{a, b} {
		for _, what := range [][]byte{[]byte("GET"), random, {}, stale, guess} {
			noise(ctx, x.dev.listeners[0].Addr().String(), what, &wg)
		}
	}
	for range 20 {
		ea, eb := a.endpoint(t), b.endpoint(t)
		join(t, ea, eb)
		w := []rdma.Write{{HasImm: true}}
		n, err := ea.Post(w)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, b.awaitReceived(1))
		require.NoError(t, ea.Close())
		require.NoError(t, eb.Close())
	}
	assert.Positive(t, a.dev.door.strangers.Load()+b.dev.door.strangers.Load())
}

// Silent connections do not fill the house: the oldest goes when one too many comes.
func TestSilentStrangers(t *testing.T) {
	a, b := newEnd(t, Options{}, 4096), newEnd(t, Options{}, 4096)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for _, x := range []*end{a, b} {
		for range maxUnknown + 20 {
			c, err := net.Dial("tcp", x.dev.listeners[0].Addr().String())
			require.NoError(t, err)
			conns = append(conns, c)
		}
	}
	join(t, a.ep, b.ep)
	for _, x := range []*end{a, b} {
		require.Eventually(t, func() bool { // accepting goes on in the background
			x.dev.door.mu.Lock()
			defer x.dev.door.mu.Unlock()
			assert.LessOrEqual(t, len(x.dev.door.waiting), maxUnknown)
			return x.dev.door.arrived > uint64(maxUnknown)
		}, 20*time.Second, time.Millisecond)
	}
	_, err := conns[0].Read(make([]byte, 1))
	assert.Error(t, err, "the first one was dropped")
}

func connectBoth(ctx context.Context, a, b *endpoint) (ea, eb error) {
	var g errgroup.Group
	g.Go(func() error { ea = a.Connect(ctx, b.Address()); return nil })
	g.Go(func() error { eb = b.Connect(ctx, a.Address()); return nil })
	_ = g.Wait()
	return ea, eb
}

// Another secret, or none, does not connect, and the error says so.
func TestSecrets(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		a := newEnd(t, Options{Secret: []byte("one"), Encrypt: encrypt}, 64)
		for _, other := range []string{"two", ""} {
			b := newEnd(t, Options{Secret: []byte(other), Encrypt: encrypt}, 64)
			ea := a.endpoint(t)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			err1, err2 := connectBoth(ctx, ea, b.ep)
			cancel()
			assert.ErrorIs(t, err1, context.DeadlineExceeded)
			assert.ErrorIs(t, err2, context.DeadlineExceeded)
			assert.ErrorContains(t, err1, "another secret")
		}
	}
}

// An endpoint pairs with the one whose address it was given, and with nobody else who knows its own.
func TestWrongPartner(t *testing.T) {
	a, b, c := newEnd(t, Options{}, 64), newEnd(t, Options{}, 64), newEnd(t, Options{}, 64)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { return c.ep.Connect(ctx, a.ep.Address()) }) // may succeed: a is not connected yet
	_ = g.Wait()
	// The same while an endpoint is already in Connect.
	busy := a.endpoint(t)
	addr, err := parseAddress(b.endpoint(t).Address())
	require.NoError(t, err)
	require.NoError(t, busy.beginConnect(addr))
	_ = c.endpoint(t).Connect(ctx, busy.Address())
	assert.Nil(t, busy.partner(0))
	join(t, a.ep, b.ep)
	n, err := b.ep.Post([]rdma.Write{{HasImm: true, Imm: 7}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, a.awaitReceived(1))
}

// An endpoint that nobody has told yet whom to connect with keeps whoever comes: the first need not be the one.
func TestEarlyPartners(t *testing.T) {
	a, b, c := newEnd(t, Options{}, 64), newEnd(t, Options{}, 64), newEnd(t, Options{}, 64)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 4 { // which of two ends leads is left to their names
		ea, eb, ec := a.endpoint(t), b.endpoint(t), c.endpoint(t)
		require.NoError(t, ec.Connect(ctx, ea.Address()))
		require.NoError(t, eb.Connect(ctx, ea.Address()))
		require.NoError(t, ea.Connect(ctx, eb.Address()))
	}
}

// The ends may call Connect one after the other, in either order.
func TestConnectInTurn(t *testing.T) {
	a, b := newEnd(t, Options{}, 64), newEnd(t, Options{}, 64)
	for range 2 {
		ea, eb := a.endpoint(t), b.endpoint(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.NoError(t, ea.Connect(ctx, eb.Address()))
		require.NoError(t, eb.Connect(ctx, ea.Address()))
		cancel()
		a, b = b, a
	}
}

// Each family alone carries a connection.
func TestFamilies(t *testing.T) {
	for _, want := range []string{"127.0.0.1", "::1"} {
		a, b := newEnd(t, Options{}, 64), newEnd(t, Options{}, 64)
		remote := func(x *end) []byte {
			addr, err := parseAddress(x.ep.Address())
			require.NoError(t, err)
			addr.routable = nil
			for _, c := range addr.loopback {
				if c.Addr().String() == want {
					addr.loopback = addr.loopback[:0:0]
					addr.loopback = append(addr.loopback, c)
					return addr.encode()
				}
			}
			t.Skipf("this host has no %s", want)
			return nil
		}
		ra, rb := remote(a), remote(b)
		var g errgroup.Group
		g.Go(func() error { return a.ep.Connect(t.Context(), rb) })
		g.Go(func() error { return b.ep.Connect(t.Context(), ra) })
		require.NoError(t, g.Wait())
		assert.Contains(t, a.ep.label, want)
	}
}

// A peer on another host that has nothing but loopback cannot be reached, which is said at the
// deadline.
func TestLoopbackOfAnotherHost(t *testing.T) {
	a, b := newEnd(t, Options{}, 64), newEnd(t, Options{}, 64)
	addr, err := parseAddress(b.ep.Address())
	require.NoError(t, err)
	addr.routable, addr.host = nil, hostID{1}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = a.ep.Connect(ctx, addr.encode())
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "nothing but loopback")
}

// All ports of a range can be taken.
func TestPortRange(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = open(Options{Interfaces: []string{"lo"}, PortMin: port, PortMax: port})
	assert.ErrorContains(t, err, "in use")
}

// What Connect says at its deadline of an address is what was seen there, not that the deadline ended the last try.
func TestDeadlineKeepsTheCause(t *testing.T) {
	a, b := newEnd(t, Options{}, 64), newEnd(t, Options{}, 64)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := make(chan net.Conn, 1)
	go func() {
		defer close(held)
		for i := range 2 { // the first try ends here, the second one by cancel
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, helloLen))
			if i == 0 {
				_ = c.Close()
				continue
			}
			held <- c
			cancel()
		}
	}()
	addr, err := parseAddress(b.ep.Address())
	require.NoError(t, err)
	addr.routable, addr.loopback = nil, []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())}
	err = a.ep.Connect(ctx, addr.encode())
	if c := <-held; c != nil {
		_ = c.Close()
	}
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "no answer to the hello: EOF")
}

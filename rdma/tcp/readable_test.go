//go:build linux

package tcp

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

// tap passes connections on to another port and keeps what crosses, in both directions.
type tap struct {
	listener net.Listener
	mu       sync.Mutex
	seen     bytes.Buffer
}

func newTap(t *testing.T, to netip.AddrPort) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	x := &tap{listener: l}
	t.Cleanup(func() { _ = l.Close() }) // the connections end when the ends are closed, after this
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to.String())
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(io.MultiWriter(pair[1], x), pair[0])
					_ = in.Close()
					_ = out.Close()
				}()
			}
		}
	}()
	return x
}

func (x *tap) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.Write(b)
}

func (x *tap) contains(b []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bytes.Contains(x.seen.Bytes(), b)
}

// tapped is the address of an end as the other one would get it if the tap were the end.
func tapped(t *testing.T, x *end) ([]byte, *tap) {
	addr, err := parseAddress(x.ep.Address())
	require.NoError(t, err)
	tap := newTap(t, addr.loopback[0])
	addr.routable = nil
	addr.loopback = []netip.AddrPort{netip.MustParseAddrPort(tap.listener.Addr().String())}
	return addr.encode(), tap
}

// With TLS nothing crosses that tells what is sent or where; without, the same search finds it.
func TestNothingReadableCrosses(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		a, b := newEnd(t, Options{Secret: []byte("s"), Encrypt: encrypt}, 1<<20), newEnd(t, Options{Secret: []byte("s"), Encrypt: encrypt}, 1<<20)
		addrA, tapA := tapped(t, a)
		addrB, tapB := tapped(t, b)
		var g errgroup.Group
		g.Go(func() error { return a.ep.Connect(t.Context(), addrB) })
		g.Go(func() error { return b.ep.Connect(t.Context(), addrA) })
		require.NoError(t, g.Wait())
		word := []byte("a gradient that nobody else may read")
		copy(a.mem.Bytes()[500_000:], word)
		n, err := a.ep.Post([]rdma.Write{{Local: a.mem.Bytes(), Region: a.mem, Remote: b.mem.Remote(), HasImm: true}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for received := 0; received == 0; {
			_, err := a.cq.Poll(a.cs[:])
			require.NoError(t, err)
			k, err := b.cq.Poll(b.cs[:])
			require.NoError(t, err)
			received += k
		}
		require.Equal(t, word, b.mem.Bytes()[500_000:][:len(word)])
		for name, part := range map[string][]byte{"payload": word, "handshake": []byte("gcclTCP"), "name": b.ep.name[:]} {
			assert.Equal(t, !encrypt, tapA.contains(part) || tapB.contains(part), "%s is readable, encrypted: %v", name, encrypt)
		}
	}
}

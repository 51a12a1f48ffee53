//go:build linux

package shm

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
)

func newDevice(t testing.TB) *Device {
	d, err := New(Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func newQueue(t testing.TB, d *Device, ring func()) rdma.CQ {
	q, err := d.NewCQ(64, ring)
	require.NoError(t, err)
	return q
}

func newPair(t testing.TB) (a, b *side) {
	a, b = newSide(t, rdma.EndpointOptions{}), newSide(t, rdma.EndpointOptions{})
	ctx := soon(t)
	require.NoError(t, a.Connect(ctx, b.Address()))
	require.NoError(t, b.Connect(ctx, a.Address()))
	return a, b
}

// side is one device with one queue and one endpoint.
type side struct {
	*Endpoint
	dev     *Device
	cq      rdma.CQ
	lost    chan error // what OnLost was called with
	scratch [16]rdma.Completion
}

func newSide(t testing.TB, opts rdma.EndpointOptions) *side {
	d := newDevice(t)
	q := newQueue(t, d, nil)
	s := &side{dev: d, cq: q, lost: make(chan error, 2)}
	opts.OnLost = func(err error) { s.lost <- err }
	e, err := d.NewEndpoint(q, opts)
	require.NoError(t, err)
	s.Endpoint = e.(*Endpoint)
	return s
}

// soon is a context that ends before the test's own limit would.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (s *side) alloc(t testing.TB, n int) rdma.Region {
	r, err := s.dev.Alloc(n, "test")
	require.NoError(t, err)
	return r
}

// poll waits for n completions.
func (s *side) poll(t testing.TB, n int) []rdma.Completion {
	ctx := soon(t)
	cs := make([]rdma.Completion, n)
	for got := 0; got < n; {
		k, err := s.cq.Poll(cs[got:])
		require.NoError(t, err)
		got += k
		if k == 0 {
			require.NoError(t, ctx.Err(), "%d of %d completions", got, n)
			runtime.Gosched()
		}
	}
	return cs
}

func TestWriteWithImmediate(t *testing.T) {
	a, b := newPair(t)
	src, dst := a.alloc(t, 10000), b.alloc(t, 20000)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i * 7)
	}
	n, err := a.Post([]rdma.Write{{
		ID: 5, Local: src.Bytes()[:9000], Region: src, Remote: dst.Remote(), Offset: 100,
		Imm: 77, HasImm: true, Signaled: true,
	}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []rdma.Completion{{Kind: rdma.Wrote, Endpoint: a.ID(), ID: 5}}, a.poll(t, 1))
	require.Equal(t, []rdma.Completion{{Kind: rdma.Received, Endpoint: b.ID(), Imm: 77, Len: 9000}}, b.poll(t, 1))
	require.Equal(t, src.Bytes()[:9000], dst.Bytes()[100:9100])
	require.Zero(t, dst.Bytes()[99])
	require.Zero(t, dst.Bytes()[9100])
}

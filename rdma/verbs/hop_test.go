package verbs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
)

// talkers makes the two ranks of a communicator, on the first and the last port, and their buffers of 8 bytes.
func talkers(b *testing.B) (comms [2]*collective.Comm, src, dst tensor.Tensor) {
	names := ports(b)
	var g errgroup.Group
	for r, group := range bootstrap.Local(2) {
		cfg := collective.Config{Group: group, Provider: "verbs", Strict: true, HCA: "=" + names[r*(len(names)-1)]}
		g.Go(func() (err error) {
			comms[r], err = collective.New(b.Context(), cfg)
			return err
		})
	}
	require.NoError(b, g.Wait())
	for _, c := range comms {
		b.Cleanup(func() { require.NoError(b, c.Close()) })
	}
	return comms, tensor.Of(make([]float32, 2)), tensor.Of(make([]float32, 2))
}

// BenchmarkHop is the work of a message of 8 bytes: a Send, and a Recv that finds it, by one goroutine; "provider"
// is a Post and the Poll of the other end alone. Nothing waits, so that over the fake library (fakeVariable and
// LD_LIBRARY_PATH, as TestOverFakeLibrary sets them) no network is in it.
func BenchmarkHop(b *testing.B) {
	b.Run("call", func(b *testing.B) {
		comms, src, dst := talkers(b)
		for from := 0; b.Loop(); from = 1 - from {
			if err := comms[from].Send(b.Context(), src, 1-from); err != nil {
				b.Fatal(err)
			}
			if err := comms[1-from].Recv(b.Context(), dst, from); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("provider", func(b *testing.B) {
		x, y := pair(b, 1<<16)
		ends := [2]*end{x, y}
		for i := 0; b.Loop(); i++ {
			e := ends[i%2]
			w := [1]rdma.Write{{Local: e.mem.Bytes()[:8], Inline: true, Remote: e.remote, HasImm: true, Signaled: i%16 >= 14}}
			if n, err := e.ep.Post(w[:]); n != 1 || err != nil {
				b.Fatal(n, err)
			}
			ends[1-i%2].drain(b, rdma.Received, 1)
		}
	})
}

// BenchmarkPingPong is half a round trip of 8 bytes by Send and Recv between two goroutines, beside BenchmarkLatency.
func BenchmarkPingPong(b *testing.B) {
	comms, src, dst := talkers(b)
	x := new(end)
	trips := func(r int, trip func(send, recv func() error) error) func() {
		send := func() error { return comms[r].Send(b.Context(), src, 1-r) }
		recv := func() error { return comms[r].Recv(b.Context(), dst, 1-r) }
		return func() {
			for range b.N {
				if err := trip(send, recv); err != nil {
					b.Error(err)
					return
				}
			}
		}
	}
	race(b, x, trips(0, func(send, recv func() error) error {
		start := time.Now()
		if err := send(); err != nil {
			return err
		}
		err := recv()
		x.times = append(x.times, time.Since(start))
		return err
	}), trips(1, func(send, recv func() error) error {
		if err := recv(); err != nil {
			return err
		}
		return send()
	}))
}

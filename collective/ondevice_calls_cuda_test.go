//go:build cuda && linux && (amd64 || arm64)

package collective

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/gccl/gccl/internal/cuda/fake"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// floats is n float32s of a rank's device memory, as a tensor and as the driver sees them.
func (g *gpuRank) floats(t *testing.T, off, n int) (tensor.Tensor, []float32) {
	d, err := tensor.OnDevice(tensor.Float32, tensor.CUDA(g.dev), g.at+uint64(4*off), n)
	require.NoError(t, err)
	b := g.f.Bytes(d.Addr(), 4*n)
	return d, unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
}

func fill(s []float32, x float32) {
	for i := range s {
		s[i] = x
	}
}

// all reports whether every element is x.
func all(s []float32, x float32) bool {
	for _, v := range s {
		if v != x {
			return false
		}
	}
	return true
}

// onGPUs is a job of n ranks with memory on the fake devices.
func onGPUs(t *testing.T, n int, cfg Config) (*fake.Driver, []*Comm, []*gpuRank) {
	f := fake.Load(t)
	cfg.CUDALibrary = f.Path
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	return f, localBroken(t, n, cfg), gpuRanks(t, f, n, 8<<20)
}

// A call sees what its tensor's stream held when it began, and its result replaces what was written before.
func TestStreamOrder(t *testing.T) {
	f, comms, gpus := onGPUs(t, 2, Config{})
	ctx := context.Background()
	const n = 1000
	each(t, comms, func(c *Comm) error {
		g := gpus[c.rank]
		d, mem := g.floats(t, 0, n)
		out, result := g.floats(t, n, n)
		stream, other := f.Stream(g.dev), f.Stream(g.dev)
		for range 3 {
			fill(mem, 1)
			f.Add(stream, d.Addr(), n, 2) // runs when somebody waits for the stream
			f.Add(other, out.Addr(), n, 100)
			if err := c.AllReduce(ctx, out.WithStream(other), d.WithStream(stream), tensor.Sum); err != nil {
				return err
			}
			require.True(t, all(result, 6), "%v", result[:4])
			if err := c.AllReduce(ctx, d.WithStream(stream), d.WithStream(stream), tensor.Avg); err != nil {
				return err
			}
			require.True(t, all(mem, 3), "%v", mem[:4])
		}
		return nil
	})
}

// Ranks may mix devices and host memory; blocks may differ; groups, transfers to oneself, prepared and
// started calls work on devices.
func TestCallsOnDevices(t *testing.T) {
	f, comms, gpus := onGPUs(t, 3, Config{})
	copies := f.Copies()
	ctx := context.Background()
	each(t, comms, func(c *Comm) error {
		g, me := gpus[c.rank], float32(c.rank)
		d, mem := g.floats(t, 0, 3000)
		e, mem2 := g.floats(t, 3000, 3000)
		h := make([]float32, 3000)

		fill(mem, me)
		fill(h, me)
		src := tensor.Of(h)
		if c.rank == 1 {
			src = d
		}
		if err := c.AllReduce(ctx, e, src, tensor.Sum); err != nil {
			return err
		}
		require.True(t, all(mem2, 3))

		// Sent from a device, received in host memory, and the other way.
		next, last := (c.rank+1)%3, (c.rank+2)%3
		if err := c.SendRecv(ctx, d, next, tensor.Of(h), last); err != nil {
			return err
		}
		require.True(t, all(h, float32(last)))
		if err := c.SendRecv(ctx, tensor.Of(h), next, e, last); err != nil {
			return err
		}
		require.True(t, all(mem2, float32((last+2)%3)))

		counts := []int{1, 2000, 0}
		if err := c.AllGatherV(ctx, e.Slice(0, 2001), d.Slice(0, counts[c.rank]), counts); err != nil {
			return err
		}
		require.True(t, mem2[0] == 0 && all(mem2[1:2001], 1), "%v", mem2[:3])
		fill(mem2, 7)
		if err := c.GatherV(ctx, e.Slice(0, 2001), d.Slice(0, counts[c.rank]), counts, 2); err != nil {
			return err
		}
		require.Equal(t, c.rank == 2, mem2[0] == 0 && all(mem2[1:2001], 1))
		require.Equal(t, c.rank != 2, all(mem2, 7))
		send, receive := []int{3, 4, 5}, []int{3 + c.rank, 3 + c.rank, 3 + c.rank}
		if err := c.AllToAllV(ctx, e.Slice(0, 3*(3+c.rank)), d.Slice(0, 12), send, receive); err != nil {
			return err
		}
		require.Equal(t, []float32{0, 1, 2}, []float32{mem2[0], mem2[3+c.rank], mem2[2*(3+c.rank)]})

		fill(mem, me)
		if err := c.Group(ctx,
			Call{Kind: Send, Src: d.Slice(0, 100), Peer: next},
			Call{Kind: Send, Src: d.Slice(0, 100), Peer: c.rank},
			Call{Kind: AllReduce, Dst: e.Slice(0, 100), Src: d.Slice(0, 100), Op: tensor.Max},
			Call{Kind: Recv, Dst: e.Slice(100, 200), Peer: last},
			Call{Kind: Recv, Dst: e.Slice(200, 300), Peer: c.rank},
			Call{Kind: Broadcast, Dst: tensor.Of(h[:10]), Src: d.Slice(0, 10), Root: 1},
		); err != nil {
			return err
		}
		require.True(t, all(mem2[:100], 2) && all(mem2[100:200], float32(last)) && all(mem2[200:300], me) && all(h[:10], 1))
		for _, own := range [][2]tensor.Tensor{{tensor.Of(h), d}, {e, tensor.Of(h)}} {
			if err := c.SendRecv(ctx, own[1], c.rank, own[0], c.rank); err != nil {
				return err
			}
		}
		require.True(t, all(mem2, me) && all(h, me))

		p, err := c.Prepare(Call{Kind: AllReduce, Dst: d, Src: d, Op: tensor.Sum})
		if err != nil {
			return err
		}
		for _, want := range []float32{3, 9} {
			if err := p.Run(ctx); err != nil {
				return err
			}
			require.True(t, all(mem, want))
		}
		started := c.Start(ctx, Call{Kind: AllReduce, Dst: d, Src: d, Op: tensor.Sum})
		if err := started.Wait(ctx); err != nil {
			return err
		}
		require.True(t, all(mem, 27))

		w, err := c.Alloc(ctx, tensor.Float32, 3000)
		if err != nil {
			return err
		}
		if c.rank == 0 { // not registered, as a call with device tensors is not
			w = tensor.Of(h)
		}
		if err := c.AllReduce(ctx, w, d, tensor.Sum); err != nil {
			return err
		}
		if c.rank == 0 {
			d, w = w, tensor.Of(make([]float32, 3000))
		}
		if err := c.AllReduce(ctx, w, d, tensor.Sum); err != nil {
			return err
		}
		empty := d.Slice(5, 5)
		return c.AllReduce(ctx, empty, empty, tensor.Sum)
	})
	require.Greater(t, f.Copies(), copies+50)
}

// Large calls go window by window: the first windows of the source are on the links before the last are
// here, and pinned memory is used again.
func TestWindowsOverlap(t *testing.T) {
	f, comms, gpus := onGPUs(t, 2, Config{BufferBytes: 256 << 10, noMap: true})
	const n = 1 << 20
	before := f.Pins()
	for range 3 {
		each(t, comms, func(c *Comm) error {
			d, mem := gpus[c.rank].floats(t, 0, n)
			fill(mem, 1)
			if err := c.AllReduce(context.Background(), d, d, tensor.Sum); err != nil {
				return err
			}
			require.True(t, all(mem, 2))
			require.Greater(t, c.recent[AllReduce].plan.plan.Windows(), 3)
			return nil
		})
	}
	require.Equal(t, before+2, f.Pins(), "one buffer a rank")
}

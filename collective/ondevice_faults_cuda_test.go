//go:build cuda && linux && (amd64 || arm64)

package collective

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/cuda/fake"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// What is wrong before anything is sent leaves the communicator as it was.
func TestDeviceFaultsBeforeTheCall(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault func(f *fake.Driver, c *Comm)
		is    error
		want  []string
	}{
		{"no library", func(_ *fake.Driver, c *Comm) { c.cfg.CUDALibrary = "libnone.so.1" }, ErrUnavailable, []string{"no CUDA driver", "libnone.so.1", "install"}},
		{"driver does not start", func(f *fake.Driver, _ *Comm) { f.Fail(fake.Init, 0, 803) }, ErrUnavailable, []string{"cuInit", "reboot"}},
		{"no device", func(f *fake.Driver, _ *Comm) { f.Have(0, true, true) }, ErrUnavailable, []string{"is a GPU there"}},
		{"device is another's", func(f *fake.Driver, _ *Comm) { f.Fail(fake.Retain, 0, 46) }, ErrUnavailable, []string{"cuda:0", "another process"}},
		{"no stream", func(f *fake.Driver, _ *Comm) { f.Fail(fake.NewStream, 1, 2) }, ErrUnavailable, []string{"cuStreamCreate", "OUT_OF_MEMORY"}},
		{"no pinned memory", func(f *fake.Driver, _ *Comm) { f.Fail(fake.Register, 0, 2) }, ErrUnavailable, []string{"pin", "OUT_OF_MEMORY"}},
		{"copy refused", func(f *fake.Driver, _ *Comm) { f.Fail(fake.ToHost, 0, 1) }, ErrDevice, []string{"cuMemcpyDtoHAsync"}},
		{"context lost", func(f *fake.Driver, _ *Comm) { f.Fail(fake.Any, 15, 709) }, ErrUnavailable, []string{"CUDA_ERROR_CONTEXT_IS_DESTROYED"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, comms, gpus := onGPUs(t, 2, Config{})
			d, mem := gpus[0].floats(t, 0, 100)
			fill(mem, 1)
			c := comms[0]
			library := c.cfg.CUDALibrary
			tt.fault(f, c)
			err := c.AllReduce(context.Background(), d, d, tensor.Sum)
			require.ErrorIs(t, err, tt.is)
			for _, w := range append(tt.want, "allreduce(float32[100] on cuda:0, sum)") {
				require.ErrorContains(t, err, w)
			}
			f.Reset()
			c.cfg.CUDALibrary = library
			each(t, comms, func(c *Comm) error {
				d, _ := gpus[c.rank].floats(t, 0, 100)
				return c.AllReduce(context.Background(), d, d, tensor.Sum)
			})
		})
	}
}

func TestWrongDevicePointers(t *testing.T) {
	f, comms, gpus := onGPUs(t, 1, Config{})
	c, g := comms[0], gpus[0]
	at, free := f.Alloc(t, 0, 64)
	free()
	on := func(device int, addr uint64, n int) error {
		d, err := tensor.OnDevice(tensor.Float32, tensor.CUDA(device), addr, n)
		require.NoError(t, err)
		return c.AllReduce(context.Background(), d, d, tensor.Sum)
	}
	for _, tt := range []struct {
		err  error
		is   error
		want string
	}{
		{on(1, g.at, 4), ErrInvalid, "is memory of cuda:0, not of cuda:1"},
		{on(0, at, 4), ErrInvalid, "no memory that the driver knows (freed"},
		{on(0, g.at, 4<<20), ErrInvalid, "no memory that the driver knows"},
		{on(7, g.at, 4), ErrUnavailable, "there is no device cuda:7"},
	} {
		require.ErrorIs(t, tt.err, tt.is)
		require.ErrorContains(t, tt.err, tt.want)
	}
	require.NoError(t, on(0, g.at, 4))
}

// What fails in a call breaks the communicator, on every rank, and names the rank whose device failed.
func TestDeviceFaultsInTheCall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		fault   func(f *fake.Driver, windows int)
		want    []string
		timeout time.Duration
	}{
		{"copy from the device", func(f *fake.Driver, _ int) { f.Fail(fake.Run, 3, 700) }, []string{"copy from cuda:0 (Fake One)", "ILLEGAL_ADDRESS", "freed"}, 0},
		{"copy to the device", func(f *fake.Driver, windows int) { f.Fail(fake.Run, windows+1, 719) }, []string{"copy to cuda:0", "LAUNCH_FAILED"}, 0},
		{"queueing a copy to it", func(f *fake.Driver, _ int) { f.Fail(fake.ToDevice, 0, 1) }, []string{"cuMemcpyHtoDAsync", "INVALID_VALUE"}, 0},
		{"query", func(f *fake.Driver, _ int) { f.Fail(fake.Query, 2, 999) }, []string{"cuEventQuery", "UNKNOWN"}, 0},
		{"never done", func(f *fake.Driver, _ int) { f.Fail(fake.Query, 0, 600) }, []string{"waited for a copy from the device"}, 300 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, comms, gpus := onGPUs(t, 2, Config{BufferBytes: 256 << 10, noMap: true})
			h := make([]float32, 1<<20)
			errs := make([]error, 2)
			ctx := context.Background()
			d, _ := gpus[0].floats(t, 0, 1<<20)
			tensors := []tensor.Tensor{d, tensor.Of(h)}
			each(t, comms, func(c *Comm) error { return c.AllReduce(ctx, tensors[c.rank], tensors[c.rank], tensor.Sum) })
			f.Leaks = true // copies may be under way after most of them
			tt.fault(f, comms[0].recent[AllReduce].plan.plan.Windows())
			if tt.timeout > 0 {
				comms[0].cfg.Timeout = tt.timeout
			}
			var wg sync.WaitGroup
			for r, c := range comms {
				wg.Go(func() {
					d := tensors[r]
					if errs[r] = c.AllReduce(ctx, d, d, tensor.Sum); errs[r] == nil {
						errs[r] = c.Barrier(ctx) // what rank 1 needed may have been there
					}
				})
			}
			wg.Wait()
			f.Reset()
			for _, w := range tt.want {
				require.ErrorContains(t, errs[0], w)
			}
			if tt.timeout == 0 {
				require.ErrorIs(t, errs[0], ErrDevice)
				require.ErrorContains(t, errs[1], "device failed")
			} else {
				require.ErrorIs(t, errs[0], context.DeadlineExceeded)
			}
			require.ErrorIs(t, errs[1], ErrGaveUp)
			require.ErrorContains(t, errs[1], "rank 0")
			var e *StepError
			require.ErrorAs(t, errs[1], &e)
			require.Equal(t, 0, e.Peer)
			require.ErrorIs(t, errs[0], comms[0].broken.Load().Kind)
			for _, c := range comms { // before the device's memory goes
				_ = c.Close()
			}
		})
	}
}

// A call that ends because of a peer leaves no copy under way.
func TestPeerLostWithCopiesUnderWay(t *testing.T) {
	f, comms, gpus := onGPUs(t, 2, Config{BufferBytes: 256 << 10, noMap: true})
	ctx := context.Background()
	done := make(chan error, 1)
	go func() {
		d, _ := gpus[0].floats(t, 0, 1<<20)
		done <- comms[0].AllReduce(ctx, d, d, tensor.Sum)
	}()
	comms[1].Abort("gone")
	require.ErrorIs(t, <-done, ErrGaveUp)
	after := f.Copies()
	require.NoError(t, comms[0].Close()) // unpins the memory and destroys the streams, which run what they still hold
	require.Equal(t, after, f.Copies())
	require.Positive(t, after)
}

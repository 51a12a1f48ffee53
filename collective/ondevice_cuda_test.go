//go:build cuda && linux && (amd64 || arm64)

package collective

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/cuda/fake"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// gpuRank is a rank's memory on the fake device.
type gpuRank struct {
	f   *fake.Driver
	dev int
	at  uint64
}

func gpuRanks(t *testing.T, f *fake.Driver, n, size int) []*gpuRank {
	ranks := make([]*gpuRank, n)
	for r := range ranks {
		at, _ := f.Alloc(t, r%2, size)
		ranks[r] = &gpuRank{f, r % 2, at}
	}
	return ranks
}

// upload puts a host tensor's bytes at an offset of the rank's memory.
func (g *gpuRank) upload(h tensor.Tensor, off int) tensor.Tensor {
	d, err := tensor.OnDevice(h.DType(), tensor.CUDA(g.dev), g.at+uint64(off), h.Len())
	if err != nil {
		panic(err)
	}
	if h.Size() > 0 {
		copy(g.f.Bytes(d.Addr(), d.Size()), h.Bytes())
	}
	return d
}

func (g *gpuRank) download(h, d tensor.Tensor) {
	if d.Size() > 0 {
		copy(h.Bytes(), g.f.Bytes(d.Addr(), d.Size()))
	}
}

// do makes a call on copies of its tensors in device memory: of both, of the source or of the destination
// alone, or of none. Tensors that overlap do so there.
func (g *gpuRank) do(c *Comm, call *Call, mode int) error {
	d := *call
	half := max(call.Dst.Size(), call.Src.Size()) + 64
	all := g.f.Bytes(g.at, 2*half)
	for i := range all {
		all[i] = guard
	}
	elem := max(1, call.Dst.DType().Size(), call.Src.DType().Size())
	aliased := tensor.Compare(call.Dst, call.Src) != tensor.Disjoint
	if aliased && mode != 0 {
		mode = 3
	}
	switch {
	case aliased && mode == 3 && call.Dst.Len() >= call.Src.Len():
		d.Dst = g.upload(call.Dst, elem)
		lo := int(call.Src.Addr()-call.Dst.Addr()) / elem
		d.Src = d.Dst.Slice(lo, lo+call.Src.Len())
	case aliased && mode == 3:
		d.Src = g.upload(call.Src, elem)
		lo := int(call.Dst.Addr()-call.Src.Addr()) / elem
		d.Dst = d.Src.Slice(lo, lo+call.Dst.Len())
	default:
		if mode&1 != 0 && call.Src.DType().Valid() {
			d.Src = g.upload(call.Src, elem)
		}
		if mode&2 != 0 && call.Dst.DType().Valid() {
			d.Dst = g.upload(call.Dst, half+elem)
		}
	}
	if err := c.do(context.Background(), &d); err != nil {
		return err
	}
	free := bytes.Count(all, []byte{guard})
	if used := d.Dst.Size() + d.Src.Size(); free < len(all)-used {
		return fmt.Errorf("%d bytes of %d changed, the tensors have %d", len(all)-free, len(all), used)
	}
	if d.Dst.Device() != tensor.Host {
		g.download(call.Dst, d.Dst)
	}
	return nil
}

// Every algorithm, root and count with tensors on devices, on some ranks only one of the two, on some none.
func TestTableOnDevices(t *testing.T) {
	f := fake.Load(t)
	staged, windows := 0, 0
	var mu sync.Mutex
	for _, tt := range []struct {
		n    int
		wire bool
	}{{1, false}, {2, false}, {3, true}} {
		t.Run(fmt.Sprintf("ranks=%d/wire=%v", tt.n, tt.wire), func(t *testing.T) {
			comms := local(t, tt.n, Config{Timeout: time.Minute, BufferBytes: 64 << 10, noMap: tt.wire, CUDALibrary: f.Path})
			gpus := gpuRanks(t, f, tt.n, 4<<20)
			each(t, comms, func(c *Comm) error {
				var mem heap
				for i, tc := range tableCases(catalog(), tt.n) {
					if !*full && (i%3 != 0 || tc.count == 65537 && i%5 != 0) {
						continue
					}
					err := tc.runBy(c, mem.place, func(call *Call) error { return gpus[c.rank].do(c, call, (i/3+c.rank)%4) })
					if err != nil {
						c.Abort("test failed")
						return fmt.Errorf("%v: %w", tc, err)
					}
					mu.Lock()
					staged++
					windows = max(windows, c.recent[Kind(tc.info.Collective)].plan.plan.Windows())
					mu.Unlock()
				}
				return nil
			})
		})
	}
	require.Greater(t, staged, 500)
	require.Greater(t, windows, 2, "no call had several windows")
}

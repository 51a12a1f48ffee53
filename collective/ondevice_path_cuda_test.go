//go:build cuda && linux && (amd64 || arm64)

package collective

import (
	"context"
	"errors"
	"testing"

	"github.com/gccl/gccl/internal/cuda/fake"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// cardDevice is a network card that takes device memory, or says why not.
type cardDevice struct {
	rdma.DeviceMemory // not used otherwise
	dmabuf, peermem   error
	open              int
}

type cardRegion struct {
	rdma.Region
	card *cardDevice
}

func (r cardRegion) Close() error { r.card.open--; return nil }

func (c *cardDevice) region(err error) (rdma.Region, error) {
	if err != nil {
		return nil, err
	}
	c.open++
	return cardRegion{card: c}, nil
}

func (c *cardDevice) Attr() rdma.Attr { return rdma.Attr{Provider: "card", Name: "card0:1"} }
func (c *cardDevice) Close() error    { return nil }
func (c *cardDevice) RegisterDMABuf(int, uint64, uint64, int) (rdma.Region, error) {
	return c.region(c.dmabuf)
}
func (c *cardDevice) RegisterPeerMemory(uint64, int) (rdma.Region, error) { return c.region(c.peermem) }

// One line says how tensors of a device go, and how the card in use could reach them.
func TestDevicePathIsToldOnce(t *testing.T) {
	no := errors.New("not here")
	for _, tt := range []struct {
		want    string
		card    *cardDevice
		fields  map[string]any
		refused []string
	}{
		{"", nil, map[string]any{"wanted": "auto", "card": "none"}, nil},
		{"auto", &cardDevice{}, map[string]any{"wanted": "auto", "card": "card0:1", "reached": "dmabuf"}, nil},
		{"auto", &cardDevice{dmabuf: no}, map[string]any{"wanted": "auto", "card": "card0:1", "reached": "peermem"}, nil},
		{"auto", &cardDevice{dmabuf: no, peermem: no}, map[string]any{"wanted": "auto", "card": "card0:1", "reached": "staged", "error": "dmabuf: not here\npeermem: not here"}, nil},
		{"peermem", &cardDevice{}, map[string]any{"wanted": "peermem", "card": "card0:1", "reached": "peermem"}, nil},
		{"staged", &cardDevice{}, map[string]any{"wanted": "staged"}, nil},
		{"dmabuf", nil, nil, []string{"GCCL_DEVICE_PATH=dmabuf", "no network card"}},
		{"dmabuf", &cardDevice{dmabuf: no}, nil, []string{"GCCL_DEVICE_PATH=dmabuf", "not here"}},
		{"peermem", &cardDevice{peermem: no}, nil, []string{"GCCL_DEVICE_PATH=peermem", "not here"}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			f := fake.Load(t)
			core, seen := observer.New(zap.InfoLevel)
			comms := local(t, 1, Config{DevicePath: tt.want, CUDALibrary: f.Path, Logger: zap.New(core)})
			if tt.card != nil {
				comms[0].devices.list = append(comms[0].devices.list, tt.card)
			}
			g := gpuRanks(t, f, 1, 4096)[0]
			d, err := tensor.OnDevice(tensor.Float32, tensor.CUDA(0), g.at, 16)
			require.NoError(t, err)
			for range 2 {
				err = comms[0].AllReduce(context.Background(), d, d, tensor.Sum)
				for _, w := range tt.refused {
					require.ErrorIs(t, err, ErrUnavailable)
					require.ErrorContains(t, err, w)
				}
				require.Equal(t, tt.refused == nil, err == nil, "%v", err)
			}
			lines := seen.FilterMessage("device memory").All()
			if tt.refused != nil {
				require.Empty(t, lines)
				return
			}
			require.Len(t, lines, 1)
			tt.fields["device"], tt.fields["collectives"] = "cuda:0 (Fake One)", "staged"
			require.Equal(t, tt.fields, lines[0].ContextMap())
			if tt.card != nil {
				require.Zero(t, tt.card.open)
			}
		})
	}
	_, err := NewLocal(context.Background(), 2, Config{DevicePath: "pigeon"})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `no path "pigeon"; there are auto, dmabuf, peermem, staged`)
}

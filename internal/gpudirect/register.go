//go:build cuda

package gpudirect

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/internal/cuda"
	"github.com/gccl/gccl/rdma"
)

// The ways for a card to device memory, and Staged, which is none: the values of GCCL_DEVICE_PATH.
const (
	Auto    = "auto"    // the first of the following that works
	DMABuf  = "dmabuf"  // the driver exports a dma-buf, which the card registers
	PeerMem = "peermem" // the card registers the address, and nvidia-peermem translates it
	Staged  = "staged"  // the card registers host memory only
)

// Register makes n bytes at addr, memory of gpu, a target of writes by card's peers: by the way that want names, or,
// for Auto and "", by the first that works. path is the way that was taken. Where none works, path is Staged, region
// nil, and err says why of each. The memory stays allocated until the region is closed.
func Register(card rdma.DeviceMemory, gpu *cuda.Device, addr uint64, n int, want string) (region rdma.Region, path string, err error) {
	ways := []struct {
		name     string
		register func(rdma.DeviceMemory, *cuda.Device, uint64, int) (rdma.Region, error)
	}{{DMABuf, byDMABuf}, {PeerMem, byPeerMem}}
	var errs []error
	for _, w := range ways {
		if want != w.name && want != Auto && want != "" {
			continue
		}
		region, err := w.register(card, gpu, addr, n)
		if err == nil {
			return region, w.name, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", w.name, err))
	}
	return nil, Staged, errors.Join(errs...)
}

func byDMABuf(card rdma.DeviceMemory, gpu *cuda.Device, addr uint64, n int) (rdma.Region, error) {
	fd, offset, err := gpu.ExportDMABuf(addr, n)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) // the registration holds the memory
	if err := gpu.SyncMemops(addr); err != nil {
		return nil, err
	}
	return card.RegisterDMABuf(fd, offset, addr, n)
}

func byPeerMem(card rdma.DeviceMemory, gpu *cuda.Device, addr uint64, n int) (rdma.Region, error) {
	if err := gpu.RDMA(); err != nil {
		return nil, err
	}
	if err := gpu.SyncMemops(addr); err != nil {
		return nil, err
	}
	return card.RegisterPeerMemory(addr, n)
}

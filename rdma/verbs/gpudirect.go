package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

var _ rdma.DeviceMemory = (*Device)(nil)

// RegisterDMABuf implements rdma.DeviceMemory by ibv_reg_dmabuf_mr: rdma-core 34, Linux 5.12, and a card whose
// driver takes dma-bufs.
func (d *Device) RegisterDMABuf(fd int, offset, addr uint64, n int) (rdma.Region, error) {
	r, err := d.registerDevice(addr, n, func() (*ibv.MR, error) {
		mr, ok, err := d.pd.NewDMABufMR(fd, offset, addr, n, d.access())
		switch {
		case !ok && err == nil:
			return nil, errors.New("libibverbs is older than rdma-core 34")
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT):
			return nil, fmt.Errorf("%w: the card's driver takes no dma-buf, or the kernel is older than 5.12", err)
		}
		return mr, err
	})
	if err != nil {
		return nil, fmt.Errorf("verbs: register dma-buf of %d bytes on %v: %w", n, d, err)
	}
	return r, nil
}

// RegisterPeerMemory implements rdma.DeviceMemory by ibv_reg_mr, which finds memory of accelerators through the
// kernel module nvidia-peermem.
func (d *Device) RegisterPeerMemory(addr uint64, n int) (rdma.Region, error) {
	r, err := d.registerDevice(addr, n, func() (*ibv.MR, error) {
		mr, err := d.pd.NewMR(uintptr(addr), n, d.access())
		if errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("%w: nobody translates the address: modprobe nvidia-peermem", err)
		}
		return mr, err
	})
	if err != nil {
		return nil, fmt.Errorf("verbs: register %d bytes at %#x on %v: %w", n, addr, d, err)
	}
	return r, nil
}

// registerDevice makes a region of memory that is not this process's. Such registrations are not shared: an
// address may be another allocation's by now.
func (d *Device) registerDevice(addr uint64, n int, mr func() (*ibv.MR, error)) (*region, error) {
	if n <= 0 {
		return nil, errors.New("no bytes")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.closedError()
	}
	m, err := mr()
	if err != nil {
		return nil, err
	}
	reg := &registration{span: span{uintptr(addr), n}, mr: m, users: 1}
	r := &region{dev: d, reg: reg, lkey: m.LKey}
	d.regions[r] = struct{}{}
	return r, nil
}

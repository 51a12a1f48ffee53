//go:build cuda && linux && (amd64 || arm64) && !noverbs

package verbs_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/internal/cuda"
	fakecuda "github.com/gccl/gccl/internal/cuda/fake"
	"github.com/gccl/gccl/internal/gpudirect"
	"github.com/gccl/gccl/rdma/verbs"
)

const withCUDA = true

// Both ways end in device memory that a peer writes into; each that does not work says why.
func TestGPUDirect(t *testing.T) {
	fake := control(t)
	gpus := fakecuda.Load(t)
	driver, err := cuda.Open(gpus.Path)
	require.NoError(t, err)
	t.Cleanup(func() { gpus.Reset(); require.NoError(t, driver.Close()) })
	gpu, err := driver.Device(1)
	require.NoError(t, err)
	name := ports(t)[0]
	owner, writer := openPort(t, name, verbs.Options{}), openPort(t, name, verbs.Options{})
	t.Cleanup(func() { require.NoError(t, owner.Close()); require.NoError(t, writer.Close()) })
	mem, _ := gpus.Alloc(t, 1, 1<<16)
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	before, regions := descriptors(), fake("fake_regions")

	const addr, message = 2048, "to the device"
	for _, tt := range []struct {
		name    string
		want    string
		peermem bool
		fault   func()
		path    string
		errs    []string
	}{
		{name: "dma-buf first", want: "auto", peermem: true, path: "dmabuf"},
		{name: "dma-buf", want: "dmabuf", path: "dmabuf"},
		{name: "peermem", want: "peermem", peermem: true, path: "peermem"},
		{name: "card takes no dma-buf", peermem: true, fault: func() { fake("fake_dmabuf", uintptr(unix.EOPNOTSUPP)) }, path: "peermem"},
		{name: "device has no dma-buf", peermem: true, fault: func() { gpus.Have(2, false, true) }, path: "peermem"},
		{name: "export fails", want: "auto", peermem: true, fault: func() { gpus.Fail(fakecuda.Handle, 0, 801) }, path: "peermem"},
		{name: "neither", want: "auto", fault: func() { gpus.Have(2, false, true) }, path: "staged",
			errs: []string{"dmabuf: cuda:1 (Fake Two) does not export dma-buf", "peermem: ", "modprobe nvidia-peermem"}},
		{name: "card refuses", want: "dmabuf", fault: func() { fake("fake_dmabuf", uintptr(unix.EINVAL)) }, path: "staged", errs: []string{"ibv_reg_dmabuf_mr: invalid argument"}},
		{name: "no GPUDirect RDMA", want: "peermem", peermem: true, fault: func() { gpus.Have(2, true, false) }, path: "staged", errs: []string{"no GPUDirect RDMA"}},
		{name: "no order", want: "auto", peermem: true, fault: func() { gpus.Fail(fakecuda.SyncMemops, 0, 1) }, path: "staged",
			errs: []string{"dmabuf: ", "SYNC_MEMOPS", "peermem: "}},
		{name: "staged", want: "staged", peermem: true, path: "staged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			translate := uintptr(0)
			if tt.peermem {
				translate = gpus.Shadow()
			}
			fake("fake_peer_memory", translate)
			if tt.fault != nil {
				tt.fault()
			}
			region, path, err := gpudirect.Register(owner, gpu, mem+addr, 100, tt.want)
			gpus.Reset()
			fake("fake_dmabuf", 0)
			require.Equal(t, tt.path, path)
			for _, w := range tt.errs {
				require.ErrorContains(t, err, w)
			}
			if path == "staged" {
				require.Nil(t, region)
				return
			}
			require.NoError(t, err)
			clear(gpus.Bytes(mem, 1<<16))
			require.NoError(t, writeInto(t, writer, owner, region.Remote(), 50, message))
			require.Equal(t, message, string(gpus.Bytes(mem+addr+50, len(message))))
			require.NoError(t, region.Close())
			require.Error(t, writeInto(t, writer, owner, region.Remote(), 50, message))
		})
	}
	require.Equal(t, regions, fake("fake_regions"), "registrations left")
	require.Equal(t, before, descriptors(), "a dma-buf was left open")
}

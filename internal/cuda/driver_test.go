//go:build cuda && linux && (amd64 || arm64)

package cuda_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/internal/cuda"
	"github.com/gccl/gccl/internal/cuda/fake"
	"github.com/gccl/gccl/internal/hostmem"
)

func open(t *testing.T) (*fake.Driver, *cuda.Driver) {
	t.Helper()
	f := fake.Load(t)
	d, err := cuda.Open(f.Path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Reset(); require.NoError(t, d.Close()) })
	return f, d
}

func device(t *testing.T, d *cuda.Driver, ordinal int) *cuda.Device {
	t.Helper()
	v, err := d.Device(ordinal)
	require.NoError(t, err)
	return v
}

func pinned(t *testing.T, v *cuda.Device, n int) []byte {
	t.Helper()
	b, err := hostmem.Alloc(n, "test")
	require.NoError(t, err)
	require.NoError(t, v.Pin(b.Bytes()))
	t.Cleanup(func() {
		require.NoError(t, v.Unpin(b.Bytes()))
		require.NoError(t, b.Close())
	})
	return b.Bytes()
}

func TestDevices(t *testing.T) {
	_, d := open(t)
	require.Equal(t, 2, d.Devices())
	require.Equal(t, "cuda:1 (Fake Two)", device(t, d, 1).String())
	require.Same(t, device(t, d, 1), device(t, d, 1))
	_, err := d.Device(2)
	require.ErrorContains(t, err, "there is no device cuda:2")
	require.ErrorContains(t, err, "counts 2")
}

// What is copied is what was on the device when the stream that was waited for had done its work.
func TestCopiesAndOrder(t *testing.T) {
	f, d := open(t)
	v := device(t, d, 0)
	src, _ := f.Alloc(t, 0, 4096)
	dst, _ := f.Alloc(t, 0, 4096)
	b := pinned(t, v, 4096)
	s, err := v.NewStream()
	require.NoError(t, err)
	e, err := v.NewEvent()
	require.NoError(t, err)

	theirs := f.Stream(0)
	f.Add(theirs, src, 1024, 1)
	require.NoError(t, s.After(theirs, e))
	require.NoError(t, s.ToHost(b, src))
	require.NoError(t, s.ToDevice(dst, b))
	require.NoError(t, s.Mark(e))
	polls := 0
	for ; ; polls++ {
		ok, err := e.Done()
		require.NoError(t, err)
		if ok {
			break
		}
		require.Less(t, polls, 100)
	}
	require.Positive(t, polls)
	require.Equal(t, f.Bytes(src, 4096), f.Bytes(dst, 4096))
	require.Equal(t, []byte{0, 0, 0x80, 0x3f}, f.Bytes(dst, 4)) // 1.0
	require.NoError(t, e.Destroy())
	require.NoError(t, s.Destroy())
}

func TestCheck(t *testing.T) {
	f, d := open(t)
	v := device(t, d, 0)
	p, free := f.Alloc(t, 0, 1<<16)
	require.NoError(t, v.Check(p, 1<<16))
	require.NoError(t, v.Check(0, 0))
	require.ErrorContains(t, v.Check(p, 1<<16+1), "no memory that the driver knows")
	require.ErrorContains(t, device(t, d, 1).Check(p, 8), "is memory of cuda:0, not of cuda:1")
	b := pinned(t, v, 4096)
	require.ErrorContains(t, v.Check(uint64(hostmem.Addr(b)), 8), "host memory")
	free()
	err := v.Check(p, 8)
	require.ErrorIs(t, err, cuda.InvalidValue)
	require.ErrorContains(t, err, "freed")
}

func TestFailures(t *testing.T) {
	f, d := open(t)
	v := device(t, d, 0)
	b := make([]byte, 1<<20)
	f.Fail(fake.Register, 0, 2)
	err := v.Pin(b)
	require.ErrorIs(t, err, cuda.OutOfMemory)
	require.ErrorContains(t, err, "pin 1 MiB of host memory")
	f.Fail(fake.NewStream, 0, 999)
	_, err = v.NewStream()
	require.ErrorContains(t, err, "CUDA_ERROR_UNKNOWN")
	f.Fail(fake.Retain, 0, 46)
	_, err = d.Device(1)
	require.ErrorContains(t, err, "another process has it")
	f.Fail(fake.Any, 0, 709)
	_, err = v.NewEvent()
	require.ErrorIs(t, err, cuda.ContextDestroyed)
	require.Equal(t, "CUDA error 12345", cuda.Result(12345).Error())
}

func TestDMABuf(t *testing.T) {
	f, d := open(t)
	v := device(t, d, 0)
	p, _ := f.Alloc(t, 0, 1<<16)
	copy(f.Bytes(p+100, 5), "hello")
	fd, off, err := v.ExportDMABuf(p+100, 5)
	require.NoError(t, err)
	require.EqualValues(t, 100, off)
	file := os.NewFile(uintptr(fd), "dma-buf")
	b := make([]byte, 5)
	_, err = file.ReadAt(b, int64(off))
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	require.NoError(t, file.Close())
	require.NoError(t, v.SyncMemops(p))
	require.ErrorIs(t, v.SyncMemops(1), cuda.InvalidValue)

	f.Fail(fake.Handle, 0, 801)
	_, _, err = v.ExportDMABuf(p, 5)
	require.ErrorIs(t, err, cuda.NotSupported)
	f.Have(2, false, false)
	_, _, err = v.ExportDMABuf(p, 5)
	require.ErrorContains(t, err, "open kernel modules")
	require.ErrorContains(t, v.RDMA(), "no GPUDirect RDMA")
	f.Have(2, true, true)
	require.NoError(t, v.RDMA())
}

func TestNoDriver(t *testing.T) {
	_, err := cuda.Open("libno-such-driver.so.1")
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "install NVIDIA's driver")
	require.ErrorContains(t, err, "libno-such-driver.so.1")
	_, err = cuda.Open("libc.so.6")
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "cuInit")

	f := fake.Load(t)
	f.Fail(fake.Init, 0, 803)
	_, err = cuda.Open(f.Path)
	require.ErrorIs(t, err, cuda.DriverMismatch)
	require.ErrorContains(t, err, "reboot")
	f.Reset()
	f.Have(0, true, true)
	_, err = cuda.Open(f.Path)
	require.ErrorIs(t, err, cuda.NoDevice)
	require.ErrorContains(t, err, "is a GPU there")
	f.Have(2, true, true)
	d, err := cuda.Open(f.Path)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
}

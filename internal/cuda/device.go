//go:build cuda

package cuda

import (
	"fmt"
	"runtime"

	"github.com/gccl/gccl/internal/hostmem"
)

// Device is a device with its primary context.
type Device struct {
	d       *Driver
	ordinal int
	h, ctx  uintptr
	name    string
}

// Numbers of cuda.h.
const (
	attrGPUDirectRDMA = 116 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
	attrDMABuf        = 124 // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED

	pointerMemoryType = 2 // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	pointerSyncMemops = 6 // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
	pointerOrdinal    = 9 // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

	memoryDevice  = 2 // CU_MEMORYTYPE_DEVICE
	memoryUnified = 4 // CU_MEMORYTYPE_UNIFIED

	rangeDMABuf       = 1 // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
	registerPortable  = 1 // CU_MEMHOSTREGISTER_PORTABLE: pinned for every context
	streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING: not ordered with the default stream
	eventNoTiming     = 2 // CU_EVENT_DISABLE_TIMING
)

// String is "cuda:0 (NVIDIA H100)".
func (v *Device) String() string {
	if v.name == "" {
		return fmt.Sprintf("cuda:%d", v.ordinal)
	}
	return fmt.Sprintf("cuda:%d (%s)", v.ordinal, v.name)
}

// inside runs f with the device's context current, on a thread that keeps its own context otherwise.
func (v *Device) inside(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := fail(call(v.d.funcs.ctxPush, v.ctx), "%v: cuCtxPushCurrent", v); err != nil {
		return err
	}
	err := f()
	if _, e := v.d.ask("cuCtxPopCurrent", v.d.funcs.ctxPop); err == nil {
		err = e
	}
	return err
}

// do makes a call that returns a result only, with the context current.
func (v *Device) do(what string, fn uintptr, args ...uintptr) error {
	return v.inside(func() error { return fail(call(fn, args...), "%v: %s", v, what) })
}

// Check tells whether the n bytes at addr are memory of this device: the first and the last byte are
// looked at. The driver does not know freed memory.
func (v *Device) Check(addr uint64, n int) error {
	if n == 0 {
		return nil
	}
	for _, at := range [2]uint64{addr, addr + uint64(n) - 1} {
		kind, err := v.d.ask("cuPointerGetAttribute", v.d.funcs.pointerGetAttribute, pointerMemoryType, uintptr(at))
		if err != nil {
			return fmt.Errorf("%#x is no memory that the driver knows (freed, or of the host): %w", at, err)
		}
		if k := uint32(kind); k != memoryDevice && k != memoryUnified {
			return fmt.Errorf("%#x is host memory, not memory of %v", at, v)
		}
		on, err := v.d.ask("cuPointerGetAttribute", v.d.funcs.pointerGetAttribute, pointerOrdinal, uintptr(at))
		if err != nil {
			return fmt.Errorf("device of %#x: %w", at, err)
		}
		if int(int32(on)) != v.ordinal {
			return fmt.Errorf("%#x is memory of cuda:%d, not of %v", at, int32(on), v)
		}
	}
	return nil
}

// Pin page-locks host memory outside the Go heap for all devices, so that copies run beside the program.
func (v *Device) Pin(b []byte) error {
	err := v.do("cuMemHostRegister", v.d.funcs.hostRegister, hostmem.Addr(b), uintptr(len(b)), registerPortable)
	if err != nil {
		return fmt.Errorf("pin %v of host memory: %w", hostmem.Size(len(b)), err)
	}
	return nil
}

// Unpin ends Pin.
func (v *Device) Unpin(b []byte) error {
	return v.do("cuMemHostUnregister", v.d.funcs.hostUnregister, hostmem.Addr(b))
}

// attribute asks for a device attribute.
func (v *Device) attribute(n uintptr) (int, error) {
	x, err := v.d.ask("cuDeviceGetAttribute", v.d.funcs.deviceGetAttribute, n, v.h)
	return int(int32(x)), err
}

// RDMA tells whether network cards can reach the device's memory through a kernel module that
// translates addresses (nvidia-peermem), as far as the device is concerned.
func (v *Device) RDMA() error {
	switch n, err := v.attribute(attrGPUDirectRDMA); {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%v has no GPUDirect RDMA (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED is 0)", v)
	}
	return nil
}

// SyncMemops has the driver order synchronous operations on the allocation at addr with accesses of network
// cards (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), for as long as the allocation lives.
func (v *Device) SyncMemops(addr uint64) error {
	return v.inside(func() error {
		v.d.mu.Lock()
		defer v.d.mu.Unlock()
		hostmem.Word64(v.d.words, 0).Store(1)
		r := call(v.d.funcs.pointerSetAttribute, hostmem.Addr(v.d.words), pointerSyncMemops, uintptr(addr))
		return fail(r, "%v: cuPointerSetAttribute(SYNC_MEMOPS, %#x)", v, addr)
	})
}

// ExportDMABuf returns a dma-buf of the host pages around the n bytes at addr, to be closed by the caller, and where
// in it they begin.
func (v *Device) ExportDMABuf(addr uint64, n int) (fd int, offset uint64, err error) {
	if v.d.funcs.getHandleForAddressRange == 0 {
		return -1, 0, fmt.Errorf("%s has no cuMemGetHandleForAddressRange: dma-buf needs a driver of CUDA 11.7", v.d.name)
	}
	switch yes, err := v.attribute(attrDMABuf); {
	case err != nil:
		return -1, 0, err
	case yes == 0:
		return -1, 0, fmt.Errorf("%v does not export dma-buf (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0: it needs the open kernel modules)", v)
	}
	page := uint64(hostmem.PageSize) // start and length must be multiples of it
	first := addr &^ (page - 1)
	length := (addr + uint64(n) - first + page - 1) &^ (page - 1)
	var h uint64
	err = v.inside(func() (err error) {
		h, err = v.d.ask("cuMemGetHandleForAddressRange", v.d.funcs.getHandleForAddressRange, uintptr(first), uintptr(length), rangeDMABuf, 0)
		return err
	})
	if err != nil {
		return -1, 0, fmt.Errorf("%v: dma-buf of %d bytes at %#x: %w", v, length, first, err)
	}
	return int(int32(h)), addr - first, nil
}

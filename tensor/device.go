package tensor

import "fmt"

// Device says where a tensor's memory is: in this process's own (Host, the zero value), or in an accelerator's.
type Device uint16

// Host is the memory of this process.
const Host Device = 0

// CUDA is the memory of the CUDA device of that ordinal, as the driver counts them from 0 within
// this process (CUDA_VISIBLE_DEVICES counts). It panics if the ordinal is negative or above 65534.
func CUDA(ordinal int) Device {
	if ordinal < 0 || ordinal >= 1<<16-1 {
		panic(fmt.Sprintf("tensor: no CUDA device %d", ordinal))
	}
	return Device(ordinal + 1)
}

// Ordinal is the number of a CUDA device, −1 of the host.
func (d Device) Ordinal() int { return int(d) - 1 }

// String is "host" or "cuda:0".
func (d Device) String() string {
	if d == Host {
		return "host"
	}
	return fmt.Sprintf("cuda:%d", d.Ordinal())
}

// deviceMemory is where a device tensor's elements are. It is never changed.
type deviceMemory struct {
	addr   uint64 // as the driver counts addresses (CUdeviceptr)
	stream uintptr
	device Device
}

// OnDevice is the view of count elements of type dt at an address (a CUdeviceptr) in the memory of
// a device. Nothing is looked at: the call that uses the tensor checks the address with the driver.
//
// The memory is the caller's, who keeps it allocated while a call uses it and until that call has
// returned, also with an error. Programs need the build tag cuda to use such tensors in calls
// (docs/device-memory.md).
//
// Calls order themselves after the work that the tensor's stream holds when the call begins: the
// default stream (handle 0, "legacy"), or the one that [Tensor.WithStream] names. When a call has
// returned, its result is in device memory for whatever is launched afterwards, on any stream.
func OnDevice(dt DType, dev Device, addr uint64, count int) (Tensor, error) {
	switch {
	case !dt.Valid():
		return Tensor{}, fmt.Errorf("tensor: %v is no element type", dt)
	case dev == Host:
		return Tensor{}, fmt.Errorf("tensor: the host is no device: use Of or FromBytes")
	case count < 0 || count > 1<<46/dt.Size():
		return Tensor{}, fmt.Errorf("tensor: %d elements on %v", count, dev)
	case addr == 0 && count > 0:
		return Tensor{}, fmt.Errorf("tensor: address 0 on %v", dev)
	case addr%uint64(dt.Size()) != 0:
		return Tensor{}, fmt.Errorf("tensor: address %#x on %v is not aligned for %v", addr, dev, dt)
	}
	n := count * dt.Size()
	if addr+uint64(n) < addr {
		return Tensor{}, fmt.Errorf("tensor: %d bytes at %#x on %v wrap around", n, addr, dev)
	}
	return Tensor{dt: dt, n: n, dev: &deviceMemory{addr: addr, device: dev}}, nil
}

// WithStream is t with the stream (a CUstream) whose earlier work a call waits for. It changes nothing
// for tensors in host memory.
func (t Tensor) WithStream(stream uintptr) Tensor {
	if t.dev != nil {
		d := *t.dev
		d.stream = stream
		t.dev = &d
	}
	return t
}

// Stream is the handle that WithStream set, 0 for the default stream.
func (t Tensor) Stream() uintptr {
	if t.dev == nil {
		return 0
	}
	return t.dev.stream
}

// Device is where the memory is.
func (t Tensor) Device() Device {
	if t.dev == nil {
		return Host
	}
	return t.dev.device
}

// Addr is the address of the first element, in device memory for a tensor there. It keeps nothing
// alive, and is for comparing and for drivers only.
func (t Tensor) Addr() uint64 {
	if t.dev != nil {
		return t.dev.addr
	}
	return address(t.first)
}

// Size is the length in bytes.
func (t Tensor) Size() int { return t.n }

// from is the memory from byte lo on.
func (d *deviceMemory) from(lo int) *deviceMemory {
	return &deviceMemory{d.addr + uint64(lo), d.stream, d.device}
}

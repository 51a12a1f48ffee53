//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gccl/gccl/internal/hostmem"
)

// Library is the driver library, which comes with the driver and not with the toolkit.
const Library = "libcuda.so.1"

// ErrNoDriver means that there is no driver library here, or that it does not work.
var ErrNoDriver = errors.New("no CUDA driver")

// Driver is an opened driver library with the devices that were used. Its methods may be called from
// any goroutine.
type Driver struct {
	name  string
	funcs functions
	count int

	mu      sync.Mutex // guards what follows, and the calls that fill out
	out     *hostmem.Block
	words   []byte
	devices map[int]*Device
}

// functions are the addresses of the calls.
type functions struct {
	init, deviceGetCount, deviceGet, deviceGetName, deviceGetAttribute uintptr
	primaryCtxRetain, primaryCtxRelease, ctxPush, ctxPop               uintptr
	pointerGetAttribute, pointerSetAttribute                           uintptr
	hostRegister, hostUnregister, memcpyToHost, memcpyToDevice         uintptr
	streamCreate, streamDestroy, streamWaitEvent                       uintptr
	eventCreate, eventDestroy, eventRecord, eventQuery                 uintptr
	getHandleForAddressRange                                           uintptr // since CUDA 11.7
}

// Open opens a driver library, "" being Library, and initialises it. Libraries are never unloaded. The error
// wraps ErrNoDriver and says what is missing.
func Open(library string) (*Driver, error) {
	if library == "" {
		library = Library
	}
	lib, err := dlopen(library)
	if err != nil {
		return nil, fmt.Errorf("%w: install NVIDIA's driver (Debian: libcuda1), and in a container its libraries: %w", ErrNoDriver, err)
	}
	d := &Driver{name: library, devices: map[int]*Device{}}
	if err := d.funcs.find(lib); err != nil {
		return nil, fmt.Errorf("%w: %s is older than CUDA 11, or no driver: %w", ErrNoDriver, library, err)
	}
	if d.out, err = hostmem.Alloc(hostmem.PageSize, "cuda"); err != nil {
		return nil, err
	}
	d.words = d.out.Bytes()
	if err := d.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoDriver, err), d.out.Close())
	}
	return d, nil
}

func (f *functions) find(lib uintptr) error {
	for _, s := range []struct {
		to       *uintptr
		name     string
		optional bool
	}{
		{&f.init, "cuInit", false},
		{&f.deviceGetCount, "cuDeviceGetCount", false},
		{&f.deviceGet, "cuDeviceGet", false},
		{&f.deviceGetName, "cuDeviceGetName", false},
		{&f.deviceGetAttribute, "cuDeviceGetAttribute", false},
		{&f.primaryCtxRetain, "cuDevicePrimaryCtxRetain", false},
		{&f.primaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", false},
		{&f.ctxPush, "cuCtxPushCurrent_v2", false},
		{&f.ctxPop, "cuCtxPopCurrent_v2", false},
		{&f.pointerGetAttribute, "cuPointerGetAttribute", false},
		{&f.pointerSetAttribute, "cuPointerSetAttribute", false},
		{&f.hostRegister, "cuMemHostRegister_v2", false},
		{&f.hostUnregister, "cuMemHostUnregister", false},
		{&f.memcpyToHost, "cuMemcpyDtoHAsync_v2", false},
		{&f.memcpyToDevice, "cuMemcpyHtoDAsync_v2", false},
		{&f.streamCreate, "cuStreamCreate", false},
		{&f.streamDestroy, "cuStreamDestroy_v2", false},
		{&f.streamWaitEvent, "cuStreamWaitEvent", false},
		{&f.eventCreate, "cuEventCreate", false},
		{&f.eventDestroy, "cuEventDestroy_v2", false},
		{&f.eventRecord, "cuEventRecord", false},
		{&f.eventQuery, "cuEventQuery", false},
		{&f.getHandleForAddressRange, "cuMemGetHandleForAddressRange", true},
	} {
		var err error
		if *s.to, err = dlsym(lib, s.name); err != nil && !s.optional {
			return err
		}
	}
	return nil
}

func (d *Driver) start() error {
	if err := fail(call(d.funcs.init, 0), "cuInit"); err != nil {
		return err
	}
	n, err := d.ask("cuDeviceGetCount", d.funcs.deviceGetCount)
	d.count = int(uint32(n))
	if err == nil && d.count == 0 {
		err = NoDevice
	}
	return err
}

// ask makes a call whose first argument is where the answer goes, and returns that.
func (d *Driver) ask(what string, fn uintptr, args ...uintptr) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.askLocked(what, fn, args...)
}

func (d *Driver) askLocked(what string, fn uintptr, args ...uintptr) (uint64, error) {
	if d.words == nil {
		return 0, fmt.Errorf("%s: the driver was closed", what)
	}
	w := hostmem.Word64(d.words, 0)
	w.Store(0)
	r := call(fn, append([]uintptr{hostmem.Addr(d.words)}, args...)...)
	return w.Load(), fail(r, "%s", what)
}

// Devices is the number of devices.
func (d *Driver) Devices() int { return d.count }

// Device returns a device by its ordinal. The first call retains the device's primary context, which the CUDA
// runtime and frameworks use, too; Close releases it.
func (d *Driver) Device(ordinal int) (*Device, error) {
	if ordinal < 0 || ordinal >= d.count {
		return nil, fmt.Errorf("there is no device cuda:%d: %s counts %d (CUDA_VISIBLE_DEVICES decides)", ordinal, d.name, d.count)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.devices[ordinal]; v != nil {
		return v, nil
	}
	v := &Device{d: d, ordinal: ordinal}
	h, err := d.askLocked("cuDeviceGet", d.funcs.deviceGet, uintptr(ordinal))
	if err != nil {
		return nil, err
	}
	v.h = uintptr(uint32(h))
	ctx, err := d.askLocked("cuDevicePrimaryCtxRetain", d.funcs.primaryCtxRetain, v.h)
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", ordinal, err)
	}
	v.ctx = uintptr(ctx)
	v.name = d.nameLocked(v.h)
	d.devices[ordinal] = v
	return v, nil
}

// nameLocked is the product name of a device, "" if the driver does not say.
func (d *Driver) nameLocked(h uintptr) string {
	const room = 128
	b := d.words[:room]
	clear(b)
	if call(d.funcs.deviceGetName, hostmem.Addr(b), room, h) != 0 {
		return ""
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Close releases the devices. Streams and pinned memory must be gone.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.words == nil {
		return nil
	}
	var errs []error
	for _, v := range d.devices {
		errs = append(errs, fail(call(d.funcs.primaryCtxRelease, v.h), "cuda:%d: cuDevicePrimaryCtxRelease", v.ordinal))
	}
	d.words, d.devices = nil, nil
	return errors.Join(append(errs, d.out.Close())...)
}

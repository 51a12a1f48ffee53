//go:build cuda && linux && (amd64 || arm64)

package fake

import (
	_ "embed"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
)

//go:embed testdata/driver.c
var source []byte

// Fault is a driver call, or a moment, that can be made to fail.
type Fault int

// The faults; testdata/driver.c has the same numbers.
const (
	Init       Fault = iota + 1
	Retain           // cuDevicePrimaryCtxRetain
	Register         // cuMemHostRegister
	ToHost           // queueing a copy from the device
	ToDevice         // queueing a copy to it
	Query            // cuEventQuery
	Handle           // cuMemGetHandleForAddressRange
	SyncMemops       // cuPointerSetAttribute
	Run              // running a copy on device 0, whose context is lost then
	NewStream        // cuStreamCreate
	Any              // any call
	faults
)

// Driver is the library with its controls.
type Driver struct {
	Path string // to be opened as the driver library
	// Leaks says that the test leaves memory pinned.
	Leaks bool
	lib   uintptr
}

// load builds and opens the library, once in a process; it stays loaded.
var load = sync.OnceValues(func() (*Driver, error) {
	dir, err := os.MkdirTemp("", "gccl-fake-cuda")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the loaded library stays
	c, lib := filepath.Join(dir, "driver.c"), filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(c, source, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-fvisibility=hidden", "-o", lib, c, "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, &compileError{string(out), err}
	}
	h, err := purego.Dlopen(lib, purego.RTLD_NOW|purego.RTLD_LOCAL)
	return &Driver{Path: lib, lib: h}, err
})

type compileError struct {
	out string
	err error
}

func (e *compileError) Error() string { return e.err.Error() + "\n" + e.out }

// Load returns the library with no fault and two devices. The test is skipped where there is no C compiler;
// with GCCL_CUDA_FAKE=must, as in CI, it fails. What the test leaves of streams, events, pinned memory and contexts
// fails it.
func Load(t testing.TB) *Driver {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("GCCL_CUDA_FAKE") == "must" {
			t.Fatalf("the fake CUDA driver needs a C compiler: %v", err)
		}
		t.Skipf("NOT TESTED: the fake CUDA driver needs a C compiler (Debian: apt install gcc libc6-dev): %v", err)
	}
	d, err := load()
	if err != nil {
		t.Fatalf("fake CUDA driver: %v", err)
	}
	d.Reset()
	d.Leaks = false
	before := d.counts()
	t.Cleanup(func() {
		d.Reset()
		after := d.counts()
		if d.Leaks {
			after[0] = before[0]
		}
		if after != before {
			t.Errorf("pins, streams, events, contexts, stray copies: %v before the test, %v after it", before, after)
		}
	})
	return d
}

func (d *Driver) call(name string, args ...uintptr) uintptr {
	fn, err := purego.Dlsym(d.lib, name)
	if err != nil {
		panic(err)
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// Reset takes all faults back.
func (d *Driver) Reset() {
	for f := Init; f < faults; f++ {
		d.Fail(f, 0, 0)
	}
	d.Have(2, true, true)
}

// Fail has a call fail with a code after it has worked some times, and from then on; code 0: never.
func (d *Driver) Fail(f Fault, after int, code uint32) {
	d.call("fake_fail", uintptr(f), uintptr(after), uintptr(code))
}

// Have says how many devices there are (2 at most), and whether they export dma-buf and have GPUDirect RDMA.
func (d *Driver) Have(devices int, dmabuf, rdma bool) {
	bit := map[bool]uintptr{true: 1}
	d.call("fake_have", uintptr(devices), bit[dmabuf], bit[rdma])
}

// Alloc returns device memory, whose length is rounded up to 64 KiB, as cuMemAlloc does; free frees it.
func (d *Driver) Alloc(t testing.TB, device, n int) (addr uint64, free func()) {
	at := d.call("fake_alloc", uintptr(device), uintptr(n))
	if at == 0 {
		t.Fatal("fake CUDA driver: out of memory")
	}
	free = func() { d.call("fake_free", at) }
	t.Cleanup(free)
	return uint64(at), free
}

// Bytes is device memory as the driver sees it. The program sees none at the address itself.
func (d *Driver) Bytes(addr uint64, n int) []byte {
	at := d.call("fake_shadow", uintptr(addr))
	if at == 0 {
		panic("fake CUDA driver: no such memory")
	}
	return view(at, n)
}

// Shadow is the address of a C function that translates device addresses to the driver's, 0 for others.
func (d *Driver) Shadow() uintptr {
	fn, err := purego.Dlsym(d.lib, "fake_shadow")
	if err != nil {
		panic(err)
	}
	return fn
}

// Stream is a new stream of a device.
func (d *Driver) Stream(device int) uintptr { return d.call("fake_stream", uintptr(device)) }

// Add launches a kernel on a stream that adds x to n float32s.
func (d *Driver) Add(stream uintptr, addr uint64, n int, x float32) {
	d.call("fake_add", stream, uintptr(addr), uintptr(n), uintptr(math.Float32bits(x)))
}

// Copies is how many copies have run.
func (d *Driver) Copies() int { return int(d.call("fake_count", 0)) }

// Pins is how many ranges of host memory are pinned.
func (d *Driver) Pins() int { return int(d.call("fake_count", 1)) }

// counts are the numbers of pins, streams, events, contexts, and copies that went to or came from memory that was not
// there any more.
func (d *Driver) counts() (n [5]int) {
	for i := range n {
		n[i] = int(d.call("fake_count", uintptr(i+1)))
	}
	return n
}

//go:build cuda

package cuda

import "fmt"

// Result is a CUresult that is not CUDA_SUCCESS. Errors of this package wrap one where the driver gave it.
type Result uint32

// Results that have a meaning here (enum cudaError_enum).
const (
	InvalidValue     Result = 1
	OutOfMemory      Result = 2
	NotInitialized   Result = 3
	NoDevice         Result = 100
	InvalidDevice    Result = 101
	InvalidContext   Result = 201
	NotReady         Result = 600
	IllegalAddress   Result = 700
	ContextDestroyed Result = 709
	NotSupported     Result = 801
	DriverMismatch   Result = 803
)

// names are CUDA's names and what they mean or what can be done.
var names = map[Result]string{
	InvalidValue:     "CUDA_ERROR_INVALID_VALUE",
	OutOfMemory:      "CUDA_ERROR_OUT_OF_MEMORY",
	NotInitialized:   "CUDA_ERROR_NOT_INITIALIZED",
	4:                "CUDA_ERROR_DEINITIALIZED: the process is ending",
	34:               "CUDA_ERROR_STUB_LIBRARY: libcuda.so.1 is the toolkit's stub: install the driver",
	46:               "CUDA_ERROR_DEVICE_UNAVAILABLE: another process has it for itself (compute mode exclusive)",
	NoDevice:         "CUDA_ERROR_NO_DEVICE: is a GPU there, and CUDA_VISIBLE_DEVICES not empty?",
	InvalidDevice:    "CUDA_ERROR_INVALID_DEVICE",
	InvalidContext:   "CUDA_ERROR_INVALID_CONTEXT",
	214:              "CUDA_ERROR_ECC_UNCORRECTABLE: the GPU's memory is damaged",
	NotReady:         "CUDA_ERROR_NOT_READY",
	IllegalAddress:   "CUDA_ERROR_ILLEGAL_ADDRESS: the device's context is lost: was the memory freed during the call?",
	ContextDestroyed: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	712:              "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	719:              "CUDA_ERROR_LAUNCH_FAILED: the device's context is lost",
	800:              "CUDA_ERROR_NOT_PERMITTED",
	NotSupported:     "CUDA_ERROR_NOT_SUPPORTED",
	802:              "CUDA_ERROR_SYSTEM_NOT_READY: is the fabric manager running?",
	DriverMismatch:   "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: kernel module and library are of different versions: reboot, or reload the module",
	999:              "CUDA_ERROR_UNKNOWN",
}

// Error is CUDA's name of the result, with advice where there is some.
func (r Result) Error() string {
	if n := names[r]; n != "" {
		return n
	}
	return fmt.Sprintf("CUDA error %d", uint32(r))
}

// fail is the error of a driver call, nil for success.
func fail(r Result, format string, args ...any) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), r)
}

// Package fake is a CUDA driver library of host memory, for tests: testdata/driver.c says how it behaves. Tests build it
// with the system's C compiler and open it as any driver. It needs the build tag cuda.
package fake

//go:build linux

package shm

import (
	"os"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/rdmatest"
	"github.com/stretchr/testify/require"
)

func openDevice() (rdma.Device, error) { return New(Options{}) }

func TestMain(m *testing.M) {
	if play := os.Getenv(childVariable); play != "" {
		os.Exit(playChild(play))
	}
	os.Exit(rdmatest.Main(m, openDevice))
}

func TestConformance(t *testing.T) {
	rdmatest.Run(t, func(t *testing.T, n int) []rdma.Device {
		devs := make([]rdma.Device, n)
		for i := range devs {
			d, err := openDevice()
			require.NoError(t, err)
			devs[i] = d
		}
		return devs
	})
}

func TestConformanceOfProcesses(t *testing.T) { rdmatest.RunProcesses(t, openDevice) }

//go:build linux

package shm

import (
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/rdmatest"
	"github.com/stretchr/testify/require"
)

func TestConformance(t *testing.T) {
	rdmatest.Run(t, func(t *testing.T, n int) []rdma.Device {
		devs := make([]rdma.Device, n)
		for i := range devs {
			d, err := New(Options{})
			require.NoError(t, err)
			devs[i] = d
		}
		return devs
	})
}

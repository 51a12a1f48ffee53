package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/rdmatest"
	"github.com/gccl/gccl/rdma/verbs"
)

// ports lists the usable ports, or skips the test with the reason. The lab (rdma/verbs/lab/rxelab)
// runs these tests on soft-RoCE.
func ports(t testing.TB) []string {
	t.Helper()
	ds, err := verbs.OpenAll(verbs.Options{})
	if err != nil {
		require.ErrorIs(t, err, rdma.ErrUnavailable)
		t.Skipf("needs RDMA: %v", err)
	}
	var names []string
	for _, d := range ds {
		names = append(names, d.Attr().Name)
		require.NoError(t, d.Close())
	}
	return names
}

// openPort opens one port, with a log into the test.
func openPort(t testing.TB, name string, o verbs.Options) *verbs.Device {
	t.Helper()
	o.HCA = "=" + name
	if o.Logger == nil {
		o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	}
	d, err := verbs.Open(o)
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	names := ports(t)
	rdmatest.Run(t, func(t *testing.T, n int) []rdma.Device {
		var ds []rdma.Device
		for i := range n {
			ds = append(ds, openPort(t, names[i%len(names)], verbs.Options{Logger: zap.NewNop()}))
		}
		return ds
	})
}

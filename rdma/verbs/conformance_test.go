package verbs_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/rdmatest"
	"github.com/gccl/gccl/rdma/verbs"
)

// timeoutVariable sets Options.Timeout in all tests and their peers: the lab's hosts may not run for
// seconds, when their own host is busy.
const timeoutVariable = "VERBS_TEST_TIMEOUT"

// quick gives up on a peer that never connects sooner than by default.
var quick = func() verbs.Options {
	t, _ := strconv.Atoi(os.Getenv(timeoutVariable))
	return verbs.Options{ConnectTimeout: 5 * time.Second, Timeout: uint8(t)}
}()

// TestMain also plays the peers that tests start in other processes and on other hosts.
func TestMain(m *testing.M) {
	if addr := os.Getenv(peerVariable); addr != "" {
		if err := servePeer(addr); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(tryVariable) != "" {
		fmt.Println(tryOpen())
		return
	}
	os.Exit(rdmatest.Main(m, func() (rdma.Device, error) {
		// The parent has the first port, its peer the last, which may be the same.
		ds, err := verbs.OpenAll(quick)
		if err != nil {
			return nil, err
		}
		keep := 0
		if os.Getenv("GCCL_RDMATEST_CHILD") != "" {
			keep = len(ds) - 1
		}
		for i, d := range ds {
			if i != keep {
				err = d.Close()
			}
		}
		return ds[keep], err
	}))
}

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

// openPort opens one port.
func openPort(t testing.TB, name string, o verbs.Options) *verbs.Device {
	t.Helper()
	o.HCA = "=" + name
	if o.Logger == nil {
		o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
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
			ds = append(ds, openPort(t, names[i%len(names)], quick))
		}
		return ds
	})
}

// openRails opens a device of n queue pairs a connection on ports.
func openRails(t testing.TB, names []string, n int, o verbs.Options) *verbs.Rails {
	t.Helper()
	o.HCA = "=" + strings.Join(names, ",")
	if o.Logger == nil {
		o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	}
	d, err := verbs.OpenRails(o, n)
	require.NoError(t, err)
	return d
}

// Several queue pairs a connection: on one port, and on two.
func TestConformanceRails(t *testing.T) {
	names := ports(t)
	if testing.Short() {
		t.Skip("TestRailsExchange is the short form")
	}
	for _, c := range []struct {
		n     int
		ports []string
	}{{2, names[:1]}, {3, names[:min(2, len(names))]}} {
		t.Run(fmt.Sprintf("%d on %d", c.n, len(c.ports)), func(t *testing.T) {
			rdmatest.Run(t, func(t *testing.T, n int) []rdma.Device {
				var ds []rdma.Device
				for range n {
					ds = append(ds, openRails(t, c.ports, c.n, quick))
				}
				return ds
			})
		})
	}
}

func TestConformanceProcesses(t *testing.T) {
	names := ports(t)
	rdmatest.RunProcesses(t, func() (rdma.Device, error) {
		o := quick
		o.HCA = "=" + names[0]
		return verbs.Open(o)
	})
}

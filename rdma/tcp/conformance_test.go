//go:build linux

package tcp_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/rdmatest"
	"github.com/gccl/gccl/rdma/tcp"
)

func openPlain() (rdma.Device, error) { return tcp.Open(tcp.Options{}) }

func TestMain(m *testing.M) { os.Exit(rdmatest.Main(m, openPlain)) }

// The contract holds whatever the options.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]tcp.Options{
		"plain":   {},
		"striped": {Sockets: 3, Checksum: true, Secret: []byte("of the job")},
		"tls":     {Encrypt: true, Secret: []byte("of the job")},
	} {
		t.Run(name, func(t *testing.T) {
			if opts.Encrypt && testing.Short() {
				t.Skip("the relay's goroutines make it slow")
			}
			rdmatest.Run(t, func(t *testing.T, n int) []rdma.Device {
				var ds []rdma.Device
				for range n {
					d, err := tcp.Open(opts)
					require.NoError(t, err)
					ds = append(ds, d)
				}
				return ds
			})
		})
	}
}

func TestProcesses(t *testing.T) { rdmatest.RunProcesses(t, openPlain) }

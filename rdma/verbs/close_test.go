//go:build linux && (amd64 || arm64) && !noverbs

package verbs_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

// A device that is closed beside NewEndpoint destroys no queue pair that is being made: the fake library ends the
// process of who uses one after its end.
func TestCloseBesideNewEndpoint(t *testing.T) {
	control(t)
	name := ports(t)[0]
	for round := range 300 {
		d := openPort(t, name, quick)
		cq, err := d.NewCQ(64, nil)
		require.NoError(t, err)
		made := make(chan struct{}, 1000)
		ended := make(chan error)
		go func() {
			for {
				if _, err := d.NewEndpoint(cq, rdma.EndpointOptions{}); err != nil {
					ended <- err
					return
				}
				made <- struct{}{}
			}
		}()
		<-made
		for range round % 30 {
			runtime.Gosched()
		}
		require.NoError(t, d.Close())
		require.ErrorIs(t, <-ended, rdma.ErrClosed)
	}
}

// An endpoint whose Close has begun beside its device's, and goes on when that has destroyed its control queue pair, leaves
// that alone.
func TestCloseBesideDevice(t *testing.T) {
	control(t)
	name := ports(t)[0]
	d1, d2 := openPort(t, name, quick), openPort(t, name, quick)
	defer d1.Close()
	defer d2.Close()
	var es []rdma.Endpoint
	for _, d := range []*verbs.Device{d1, d2} {
		cq, err := d.NewCQ(64, nil)
		require.NoError(t, err)
		e, err := d.NewEndpoint(cq, rdma.EndpointOptions{})
		require.NoError(t, err)
		es = append(es, e)
	}
	require.NoError(t, es[0].Connect(t.Context(), es[1].Address()))
	require.NoError(t, es[1].Connect(t.Context(), es[0].Address()))
	verbs.CloseAroundDevice(es[0])
}

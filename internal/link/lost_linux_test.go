package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/shm"
	"github.com/stretchr/testify/require"
)

// A provider may tell of a lost peer at any moment, also while the mesh is closed and after: the
// memory of the boards is not touched then.
func TestLostWhileClosing(t *testing.T) {
	for range 50 {
		a, b := sharedPair(t, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})
		var wg sync.WaitGroup
		var ended atomic.Bool
		began := make(chan struct{})
		wg.Go(func() {
			close(began)
			for !ended.Load() {
				a.Peer(1).gone.Store(nil) // as if it were the first time
				a.lost(a.Peer(1), rdma.ErrPeerLost)
			}
		})
		<-began
		require.NoError(t, a.Close())
		ended.Store(true)
		wg.Wait()
		require.NoError(t, b.Close())
	}
}

// sharedPair connects two ranks over memory that is unmapped at the end.
func sharedPair(t *testing.T, g Geometry) (a, b *Mesh) {
	meshes := make([]*Mesh, 2)
	for r := range meshes {
		dev, err := shm.New(shm.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Close() })
		meshes[r], err = New(Config{Rank: r, Size: 2, Geometry: g, Bell: NewBell(),
			Device: func(int) rdma.Device { return dev }, Describe: func(r int) string { return fmt.Sprintf("rank %d", r) }})
		require.NoError(t, err)
	}
	blobs := [][]byte{meshes[0].Blob(), meshes[1].Blob()}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for r, m := range meshes {
		wg.Go(func() { errs[r] = m.Connect(context.Background(), blobs) })
	}
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	return meshes[0], meshes[1]
}

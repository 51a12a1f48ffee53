package link

import (
	"context"
	"fmt"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
)

// Which peer is named when several cannot be connected does not depend on who is tried first.
func TestConnectNamesTheLowest(t *testing.T) {
	for range 20 {
		dev := loopback.NewNetwork().Device()
		m, err := New(Config{Rank: 0, Size: 4, Geometry: Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, Bell: NewBell(), Touch: 1,
			Device: func(int) rdma.Device { return dev }, Describe: func(r int) string { return fmt.Sprintf("rank %d", r) }})
		require.NoError(t, err)
		err = m.Connect(context.Background(), [][]byte{m.Blob(), {1}, {2}, {3}})
		var to *ConnectError
		require.ErrorAs(t, err, &to)
		require.Equal(t, 1, to.Rank)
		require.ErrorContains(t, err, "blob of rank 1")
		require.NoError(t, m.Close())
	}
}

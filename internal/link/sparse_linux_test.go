package link

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/shm"
	"github.com/stretchr/testify/require"
)

// residentShared is how much shared memory the page tables of this process hold.
func residentShared(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssShmem:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no RssShmem")
	return 0
}

// Ranks that share memory touch the rings between them, of the first lanes and the last, from both ends: not the
// other lanes, and not what the peers share with others.
func TestMeshTouchesItsOwnRings(t *testing.T) {
	const size = 6
	g := Geometry{Lanes: 5, Slots: 16, SlotBytes: 16 << 10}
	before := residentShared(t)
	for _, m := range meshes(t, size, Config{Geometry: g, Touch: 1, Sparse: true}, func() rdma.Device {
		dev, err := shm.New(shm.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Close() })
		return dev
	}) {
		defer m.Close()
	}
	const others = 80 << 10 // per pair: boards, completion rings, and pages that begin in another ring
	touched := residentShared(t) - before
	require.Less(t, touched, 2*size*(size-1)*(2*g.laneBytes()+others))
	require.Greater(t, touched, 2*size*(size-1)*2*g.laneBytes(), "the first messages pay for no page")
}

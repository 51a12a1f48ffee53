package executor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// meshes connects two ranks over memory, the first with the bell given, if any.
func meshes(t *testing.T, g link.Geometry, bell ...rdma.Bell) []*link.Mesh {
	ms, _ := meshesOf(t, 2, link.Config{Geometry: g}, bell...)
	return ms
}

// meshesOf connects n ranks, each with its bell if there is one, and returns their devices, too.
func meshesOf(t *testing.T, n int, cfg link.Config, bells ...rdma.Bell) (ms []*link.Mesh, devs []rdma.Device) {
	net := loopback.NewNetwork()
	var blobs [][]byte
	for r := range n {
		dev := net.Device()
		if cfg.Rank, cfg.Size, cfg.Bell = r, n, link.NewBell(); r < len(bells) {
			cfg.Bell = bells[r]
		}
		cfg.Device, cfg.Describe = func(int) rdma.Device { return dev }, func(r int) string { return fmt.Sprintf("rank %d", r) }
		m, err := link.New(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		ms, blobs, devs = append(ms, m), append(blobs, m.Blob()), append(devs, dev)
	}
	var all errgroup.Group
	for _, m := range ms {
		all.Go(func() error { return m.Connect(t.Context(), blobs) })
	}
	require.NoError(t, all.Wait())
	return ms, devs
}

// A ring may have headers left and no slot. A rank that waits for a slot says so, and notices the end of
// the peer that would free it.
func TestWaitingForASlot(t *testing.T) {
	ms := meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}}})
	p, err := Transfer(1, true).Plan(ms[0], Layout{Elem: 1, In: []int{200}}, 0)
	require.NoError(t, err)
	job := &Job{Plan: p, Args: Args{In: make([]byte, 200), Call: link.Call{FP: 7}}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, e.Run(ctx, 0, []*Job{job}), context.Canceled)
	require.Equal(t, []int{1}, e.WaitsFor(nil))
	require.Equal(t, []int{1}, e.Lanes()[0].WaitsFor)

	ms[1].Goodbye()
	var gone *Gone
	require.ErrorAs(t, e.Run(context.Background(), 3*time.Second, []*Job{job}), &gone)
	require.Equal(t, 1, gone.Notice.Culprit)
}

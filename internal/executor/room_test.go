package executor

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
)

// meshes connects two ranks over memory, the first with the bell given, if any.
func meshes(t *testing.T, g link.Geometry, bell ...rdma.Bell) [2]*link.Mesh {
	return meshesOf(t, g, false, bell...)
}

// meshesOf makes two meshes whose memory the other maps, or writes into (noMap).
func meshesOf(t *testing.T, g link.Geometry, noMap bool, bell ...rdma.Bell) [2]*link.Mesh {
	net := loopback.NewNetwork()
	var ms [2]*link.Mesh
	for r := range ms {
		dev := net.Device()
		var b rdma.Bell = link.NewBell()
		if r < len(bell) {
			b = bell[r]
		}
		m, err := link.New(link.Config{Rank: r, Size: 2, Geometry: g, Bell: b, NoMap: noMap,
			Device: func(int) rdma.Device { return dev }, Describe: func(r int) string { return fmt.Sprintf("rank %d", r) }})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		ms[r] = m
	}
	blobs := [][]byte{ms[0].Blob(), ms[1].Blob()}
	var wg sync.WaitGroup
	var errs [2]error
	for r, m := range ms {
		wg.Go(func() { errs[r] = m.Connect(context.Background(), blobs) })
	}
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	return ms
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

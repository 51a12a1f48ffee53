package cpu_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/stretchr/testify/require"
)

// TestFence plays a ringer that stores without a fence and a sleeper that fences: in no round may
// both miss each other's store. Without FenceOthers it fails on amd64 within a few hundred rounds.
func TestFence(t *testing.T) {
	if !cpu.ReceiveFences() {
		t.Skip("membarrier(2) is not permitted here")
	}
	const rounds = 20_000
	var work, asleep [rounds]struct {
		atomic.Uint64
		_ [56]byte
	}
	var sawAsleep, sawWork [rounds]bool
	var at [2]atomic.Int64
	meet := func(me, i int) { // both begin a round together
		at[me].Store(int64(i + 1))
		for at[1-me].Load() < int64(i+1) {
			cpu.Yield()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			meet(0, i)
			cpu.StoreRelease(&work[i].Uint64, 1)
			sawAsleep[i] = asleep[i].Load() != 0
		}
	})
	wg.Go(func() {
		for i := range rounds {
			meet(1, i)
			asleep[i].Store(1)
			cpu.FenceOthers()
			sawWork[i] = work[i].Load() != 0
		}
	})
	wg.Wait()
	for i := range rounds {
		require.True(t, sawAsleep[i] || sawWork[i], "round %d: neither saw the other", i)
	}
}

package collective

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

var overhead = flag.Bool("overhead", false, "measure what fingerprints, recorder and heartbeats cost; wants an idle machine")

// pairOver makes a job of two goroutines over shared memory, with all that shows failures or without.
func pairOver(t *testing.T, bare bool) []*Comm {
	comms := make([]*Comm, 2)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for r, g := range bootstrap.Local(2) {
		wg.Go(func() {
			cfg := Config{Group: g, Provider: "shm", bare: bare}
			if bare {
				cfg.Heartbeat = -1
			}
			comms[r], errs[r] = New(context.Background(), cfg)
		})
	}
	wg.Wait()
	for r, c := range comms {
		require.NoError(t, errs[r])
		t.Cleanup(func() { _ = c.Close() })
	}
	return comms
}

// What fingerprints, flight recorder and heartbeats cost together: two jobs of two ranks in one process
// take turns, so that what the machine does meanwhile hits both; the median of the pairs' ratios counts.
func TestOverhead(t *testing.T) {
	if !*overhead {
		t.Skip("-overhead measures")
	}
	whole, bare := pairOver(t, false), pairOver(t, true)
	for _, n := range []int{2, 256, 4 << 10, 64 << 10, 1 << 20, 8 << 20} {
		x := [2][]float32{make([]float32, n), make([]float32, n)}
		batch := func(comms []*Comm, calls int) time.Duration {
			began := time.Now()
			var wg sync.WaitGroup
			for r, c := range comms {
				wg.Go(func() {
					for range calls {
						require.NoError(t, c.AllReduce(context.Background(), tensor.Of(x[r]), tensor.Of(x[r]), tensor.Max))
					}
				})
			}
			wg.Wait()
			return time.Since(began)
		}
		calls := 1
		for batch(bare, calls) < 8*time.Millisecond {
			calls *= 2
		}
		batch(whole, calls)
		var ratios []float64
		var times []time.Duration
		for i, end := 0, time.Now().Add(4*time.Second); i < 200 && time.Now().Before(end); i++ {
			var w, b time.Duration
			if i%2 == 0 {
				w, b = batch(whole, calls), batch(bare, calls)
			} else {
				b, w = batch(bare, calls), batch(whole, calls)
			}
			ratios, times = append(ratios, float64(w)/float64(b)), append(times, w/time.Duration(calls))
		}
		slices.Sort(ratios)
		slices.Sort(times)
		t.Logf("| %d | %v | %+.2f %% | %+.2f … %+.2f %% | %d |", 4*n, times[len(times)/2], 100*(ratios[len(ratios)/2]-1),
			100*(ratios[len(ratios)/4]-1), 100*(ratios[len(ratios)*3/4]-1), len(ratios))
	}
}

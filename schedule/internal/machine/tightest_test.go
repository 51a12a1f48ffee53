package machine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
)

// TestTightest: what runs on 3·ahead+1 slots with chunks of 3 segments runs on all links that are
// easier (verify.tightest has the proof), step by step and streamed.
func TestTightest(t *testing.T) {
	const programs, most = 2000, 3
	var runs, stops int
	for seed := range uint64(programs) {
		rng := rand.New(rand.NewPCG(seed, 2))
		all := random(rng)
		p, err := New(len(all), func(r int) (schedule.Schedule, error) { return all[r], nil })
		require.NoError(t, err)
		require.NoError(t, p.Pairs())
		for _, fused := range []bool{false, true} {
			for ahead := range 3 {
				run := func(slots, segments int) error {
					return Run(p, Config{Slots: slots, Segments: segments, Fused: fused})
				}
				if run(most*ahead+1, most) != nil {
					stops++
					continue
				}
				runs++
				for slots := 1; slots <= 7; slots++ {
					for segments := 1; segments <= most*slots; segments++ {
						if ahead == 0 || segments <= most && segments*ahead < slots {
							require.NoError(t, run(slots, segments), "seed %d: runs with ahead %d", seed, ahead)
						}
					}
				}
			}
		}
	}
	t.Logf("%d runs, %d stops", runs, stops)
	require.Greater(t, min(runs, stops), programs/10)
}

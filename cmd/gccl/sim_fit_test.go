package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/schedule"
)

// TestFit: times that come from the model are explained by the fit, of the sizes between them as well.
func TestFit(t *testing.T) {
	catalog := collective.Catalog()
	names := map[schedule.Collective]string{
		schedule.AllReduce: "direct.AllReduceOneShot", schedule.Reduce: "direct.ReduceDirect",
		schedule.Broadcast: "direct.BroadcastDirect", schedule.AllGather: "direct.AllGatherDirect",
		schedule.ReduceScatter: "direct.ReduceScatterDirect", schedule.AllToAll: "direct.AllToAllPairwise",
		schedule.Gather: "direct.GatherDirect", schedule.Scatter: "direct.ScatterDirect",
	}
	pick := func(coll schedule.Collective, _ int) (string, schedule.Algorithm, error) {
		i := slices.IndexFunc(catalog, func(in schedule.Info) bool { return in.Name == names[coll] })
		return names[coll], catalog[i].Make, nil
	}
	const bothWays, slower, combine, copying = 1e-10, 0.7e-10, 0.2e-10, 0.3e-10
	truth := &fitted{alpha: 5e-7, pick: pick, regimes: []regime{{1, bothWays, slower, combine, copying}}}
	var cells []*cell
	add := func(kind string, bytes int, seconds float64) {
		cells = append(cells, &cell{kind: kind, bytes: bytes, trips: 1, samples: []int64{int64(seconds * 1e9)}})
	}
	add("pingpong", 8, truth.alpha)
	add("copy", 8, 0)
	for n := fitLeast; n <= fitMost; n *= 2 {
		add("copy", n*3/4, copying*float64(n)*3/4)
		for _, coll := range fitCollectives {
			_, s, err := truth.predict(coll, n)
			require.NoError(t, err)
			add(coll.String(), n, s)
		}
	}
	for _, coll := range comparedCollectives {
		for _, n := range comparedSizes() {
			_, s, err := truth.predict(coll, n)
			require.NoError(t, err)
			add(coll.String(), n, s)
		}
	}
	f, err := fit(pick, cells)
	require.NoError(t, err)
	last := f.regimes[len(f.regimes)-1]
	assert.InEpsilon(t, bothWays, last.both, 0.02)
	assert.InEpsilon(t, slower, last.slower, 0.02)
	assert.InEpsilon(t, combine, last.reduce, 0.1)
	assert.InEpsilon(t, copying, last.copying, 0.01)
	var out bytes.Buffer
	require.NoError(t, printErrors(&out, pick, cells))
	assert.Contains(t, out.String(), "48 of 48 within 15 %")
}

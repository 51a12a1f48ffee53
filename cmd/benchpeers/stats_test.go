package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	v := []float64{3, 1, 2}
	assert.Equal(t, 2.0, median(v))
	assert.Equal(t, []float64{3, 1, 2}, v, "the caller's order is kept")
	assert.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	assert.Equal(t, 7.0, median([]float64{7}))
}

func TestGeomean(t *testing.T) {
	assert.InDelta(t, 2.0, geomean([]float64{1, 2, 4}), 1e-12)
	assert.InDelta(t, 1.0, geomean([]float64{0.25, 4}), 1e-12)
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0.01, 100), 1, 20).Draw(t, "v")
		inverse := make([]float64, len(v))
		for i, x := range v {
			inverse[i] = 1 / x
		}
		assert.InEpsilon(t, 1/geomean(v), geomean(inverse), 1e-9)
	})
}

// measured is a row of an undisturbed launch.
func measured(config, lib string, us float64) row {
	return row{Config: config, Lib: lib, Coll: "allreduce", Ranks: 2, Bytes: 8, Time: us, Place: "near", TCP: lib == "Gloo"}
}

func TestBestPeerIsTheFastestMedian(t *testing.T) {
	got := compare([]row{
		measured("gccl", "gccl", 2), measured("gccl", "gccl", 1), measured("gccl", "gccl", 9),
		measured("ompi", "OpenMPI", 1), measured("ompi", "OpenMPI", 8), measured("ompi", "OpenMPI", 8), // one lucky call does not win
		measured("mpich", "MPICH", 6), measured("mpich", "MPICH", 6),
		measured("gloo", "Gloo", 100),
	}, 0.03)
	assert.Equal(t, []comparison{{cell: cell{"allreduce", false, 2, 8}, ours: 2, peer: "mpich", theirs: 6, ratio: 3}}, got)
}

func TestWhoMayBeCompared(t *testing.T) {
	tcp, huge, wrong, failed, inPlace := measured("gccl-tcp", "gccl", 50), measured("ompi-huge", "OpenMPI", 1), measured("bad", "OpenMPI", 1), measured("ompi", "OpenMPI", 1), measured("ompi-inplace", "OpenMPI", 1)
	tcp.TCP, huge.Huge, wrong.Wrong, failed.Failed, inPlace.InPlace = true, true, 1, "killed", true
	got := compare([]row{measured("gccl", "gccl", 2), tcp, huge, wrong, failed, inPlace, measured("ompi", "OpenMPI", 4), measured("gloo", "Gloo", 100)}, 0.03)
	require.Len(t, got, 2)
	assert.Equal(t, "ompi", got[0].peer)
	assert.Equal(t, comparison{cell: cell{"allreduce", false, 2, 8}, variant: 2, ours: 50, peer: "gloo", theirs: 100, ratio: 2}, got[1])
}

func TestNoPeerNoComparison(t *testing.T) {
	assert.Empty(t, compare([]row{measured("gccl", "gccl", 2)}, 0.03))
	assert.Empty(t, compare([]row{measured("ompi", "OpenMPI", 2)}, 0.03))
}

func TestTypicalPrefersUndisturbedThenThePlacement(t *testing.T) {
	r := func(us, foreign float64, place string) row { return row{Time: us, Foreign: foreign, Place: place} }
	us, noisy := typical([]row{r(1, 0, "near"), r(5, 0, "far"), r(9, 0.5, "far")}, "far", 0.03)
	assert.Equal(t, 5.0, us)
	assert.False(t, noisy)
	us, _ = typical([]row{r(1, 0, "near"), r(3, 0, "near")}, "far", 0.03)
	assert.Equal(t, 2.0, us, "another placement is better than none")
	us, noisy = typical([]row{r(9, 0.5, "far"), r(7, 0.5, "near")}, "far", 0.03)
	assert.Equal(t, 9.0, us)
	assert.True(t, noisy)
}

func TestUsualPlacement(t *testing.T) {
	assert.Equal(t, "far", usual([]row{{Place: "near"}, {Place: "far"}, {Place: "far"}}))
	assert.Equal(t, "near", usual([]row{{Place: "far"}, {Place: "near"}}), "near where both were seen as often")
}

func TestPermitted(t *testing.T) {
	bounds := []bound{{"read", 2, 40, "GB/s", "near"}, {"write", 2, 20, "GB/s", "near"}, {"copy", 2, 10, "GB/s", "near"}, {"flag, two lines", 2, 50, "ns", "near"}, {"flag, two lines", 2, 70, "ns", "near"}}
	mib := 1 << 20
	assert.InDelta(t, 200*float64(mib)/10e3, permitted(cell{"allreduce", false, 2, 100 * mib}, bounds, mib), 1e-6)
	assert.InDelta(t, float64(mib)*100/10e3+float64(mib)*100/40e3, permitted(cell{"reduce", false, 2, 100 * mib}, bounds, mib), 1e-6)
	assert.Zero(t, permitted(cell{"allreduce", false, 2, mib / 2}, bounds, mib), "it may stay in the cache")
	assert.InDelta(t, 0.06, permitted(cell{"barrier", false, 2, 0}, bounds, mib), 1e-9)
	assert.Zero(t, permitted(cell{"barrier", false, 4, 0}, bounds, mib))
	assert.Zero(t, permitted(cell{"pingpong", false, 2, 8}, bounds, mib), "that bound was not measured")
}

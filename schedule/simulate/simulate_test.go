package simulate_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/simulate"
	"github.com/gccl/gccl/schedule/verify/verifytest"
	"github.com/gccl/gccl/tree"
)

// plain is a machine of latency α and bandwidth β, and γ for combining, on which a chunk is one
// segment and nothing else costs time.
func plain(alpha time.Duration, beta, gamma float64) simulate.Params {
	return simulate.Params{
		Net:     simulate.Path{Latency: alpha, Bandwidth: beta},
		Reduce:  gamma,
		Segment: 1 << 40, Slots: 1 << 20,
	}
}

func run(t *testing.T, alg schedule.Algorithm, size int, shape schedule.Shape, n int, p simulate.Params) simulate.Result {
	t.Helper()
	r, err := simulate.Run(alg, size, shape, n, p, nil)
	require.NoError(t, err)
	return r
}

const (
	alpha  = 5 * time.Microsecond
	beta   = 1e9
	gamma  = 4e9
	length = 12 << 20
)

// seconds of S bytes at a bandwidth.
func at(s, bandwidth float64) time.Duration { return time.Duration(s / bandwidth * 1e9) }

// TestFormulas compares with the costs of the literature: Thakur, Rabenseifner & Gropp 2005.
func TestFormulas(t *testing.T) {
	s := float64(length)
	p := plain(alpha, beta, gamma)
	for _, c := range []struct {
		name string
		alg  schedule.Algorithm
		size int
		want time.Duration
	}{
		{"ring", ring.AllReduce, 6, 10*(alpha+at(s/6, beta)) + 5*at(s/6, gamma)},
		{"ring of 8", ring.AllReduce, 8, 14*(alpha+at(s/8, beta)) + 7*at(s/8, gamma)},
		{"recursive doubling", direct.AllReduceRecursiveDoubling, 16, 4 * (alpha + at(s, beta) + at(s, gamma))},
		{"Rabenseifner", direct.AllReduceHalvingDoubling, 16, 8*alpha + at(2*15*s/16, beta) + at(15*s/16, gamma)},
		{"circulant", direct.AllReduceCirculant, 4, 4*alpha + at(2*3*s/4, beta) + at(3*s/4, gamma)},
		{"one shot", direct.AllReduceOneShot, 4, alpha + at(3*s, beta) + at(3*s, gamma)},
		{"two shot", direct.AllReduceTwoShot, 4, 2*alpha + at(2*3*s/4, beta) + at(3*s/4, gamma)},
		{"binomial broadcast", tree.Broadcast, 2, alpha + at(s, beta)},
		{"direct all-gather", direct.AllGatherDirect, 5, alpha + at(4*s/5, beta)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, c.alg, c.size, schedule.Shape{}, length, p)
			assert.InDelta(t, c.want.Seconds(), got.Time.Seconds(), 1e-6*c.want.Seconds())
		})
	}
}

// TestStreaming: segments flow through a chain of p ranks like water, so that the time is that of
// one transfer plus a segment and a latency for each further rank.
func TestStreaming(t *testing.T) {
	p := plain(alpha, beta, 0)
	p.Segment = length / 64
	got := run(t, direct.ScanLinear, 5, schedule.Shape{}, length, p)
	want := 4*alpha + at(length*(1+3.0/64), beta)
	assert.InDelta(t, want.Seconds(), got.Time.Seconds(), 1e-6*want.Seconds())
}

// TestSlots: with one slot a sender waits for the credit of each segment: two latencies a segment.
func TestSlots(t *testing.T) {
	p := plain(alpha, beta, 0)
	p.Segment, p.Slots = length/64, 1
	got := run(t, direct.ReduceDirect, 2, schedule.Shape{}, length, p)
	want := 64*at(length/64, beta) + (64+63)*alpha
	assert.InDelta(t, want.Seconds(), got.Time.Seconds(), 1e-6*want.Seconds())
}

// TestOneCore: the lanes of a rank share its core. Rank 0 has four sends, four receives and a copy.
func TestOneCore(t *testing.T) {
	p := plain(0, 0, 0)
	p.Overhead = time.Microsecond
	got := run(t, direct.AllToAllPairwise, 5, schedule.Shape{}, length, p)
	assert.Equal(t, 9*time.Microsecond, got.Time.Round(time.Nanosecond))
}

// TestCopies: where ranks share memory, cores move the data. In an exchange a core puts and takes in turn; one way
// the slower side counts, and a segment of the other.
func TestCopies(t *testing.T) {
	p := plain(0, 0, gamma)
	p.Hosts = []int{0, 0}
	p.Local = simulate.Path{Put: 8e9, Take: 5e9}
	one := run(t, direct.AllReduceOneShot, 2, schedule.Shape{}, length, p)
	want := at(length, 8e9) + at(length, 5e9) + at(length, gamma)
	assert.InDelta(t, want.Seconds(), one.Time.Seconds(), 1e-6*want.Seconds())
	p.Segment = length / 64
	way := run(t, direct.ReduceDirect, 2, schedule.Shape{}, length, p)
	want = at(length/64, 8e9) + at(length, 5e9) + at(length, gamma)
	assert.InDelta(t, want.Seconds(), way.Time.Seconds(), 1e-6*want.Seconds())
	p.Hosts = nil
	assert.InDelta(t, at(length, gamma).Seconds(), run(t, direct.AllReduceOneShot, 2, schedule.Shape{}, length, p).Time.Seconds(), 1e-9, "another kind of path")
}

// TestHostPorts: ranks of one host share its network ports, and do not use them among themselves.
func TestHostPorts(t *testing.T) {
	p := plain(0, beta, 0)
	p.Hosts = []int{0, 0, 1, 1}
	gather := direct.AllGatherDirect
	free := run(t, gather, 4, schedule.Shape{}, length, p)
	// Ranks 0 and 1 both send first to 2 and then to 3, whose ports are the bottleneck in turn.
	assert.InDelta(t, at(3*length/4, beta).Seconds(), free.Time.Seconds(), 1e-9, "local transfers cost nothing here")
	p.HostBandwidth = beta
	shared := run(t, gather, 4, schedule.Shape{}, length, p)
	assert.InDelta(t, at(4*length/4, beta).Seconds(), shared.Time.Seconds(), 1e-9, "four blocks leave each host")
	p.HostBandwidth, p.SwitchBandwidth = 0, beta
	through := run(t, gather, 4, schedule.Shape{}, length, p)
	assert.InDelta(t, at(8*length/4, beta).Seconds(), through.Time.Seconds(), 1e-9, "eight blocks cross the network")
}

// TestSymmetry: one rank that stands for all takes as long as all of them do. A trace asks for all.
func TestSymmetry(t *testing.T) {
	p := simulate.Default()
	for name, alg := range map[string]schedule.Algorithm{
		"ring": ring.AllReduce, "halving": direct.AllReduceHalvingDoubling,
		"all-gather": direct.AllGatherDirect, "doubling": direct.AllReduceRecursiveDoubling,
	} {
		for _, size := range []int{4, 8, 16, 32} {
			for _, n := range []int{0, 1 << 10, 1 << 20, 48 << 20} {
				one := run(t, alg, size, schedule.Shape{}, n, p)
				all, err := simulate.Run(alg, size, schedule.Shape{}, n, p, new(simulate.Trace))
				require.NoError(t, err)
				assert.True(t, one.Symmetric, "%s %d", name, size)
				assert.False(t, all.Symmetric)
				assert.Equal(t, all.Time, one.Time, "%s, %d ranks, %d bytes", name, size, n)
			}
		}
	}
	p.Hosts = []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}
	for _, n := range []int{1 << 10, 48 << 20} {
		shape := schedule.Shape{Hosts: p.Hosts}
		one := run(t, twoLevel, 16, shape, n, p)
		all, err := simulate.Run(twoLevel, 16, shape, n, p, new(simulate.Trace))
		require.NoError(t, err)
		assert.True(t, one.Symmetric)
		assert.Equal(t, all.Time, one.Time)
	}
	// One host stands for all, its ports shared or not, where its ranks differ.
	for name, alg := range map[string]schedule.Algorithm{
		"ring":      ring.AllReduce,
		"two level": twoLevel,
	} {
		for _, ports := range []float64{0, 20e9} {
			for _, n := range []int{1 << 10, 48 << 20} {
				shape := schedule.Shape{Hosts: p.Hosts}
				p.HostBandwidth = ports
				one := run(t, alg, 16, shape, n, p)
				all, err := simulate.Run(alg, 16, shape, n, p, new(simulate.Trace))
				require.NoError(t, err)
				assert.True(t, one.Symmetric, name)
				assert.Equal(t, all.Time, one.Time, "%s, %d bytes, ports of %g", name, n, ports)
			}
		}
	}
	p.HostBandwidth = 0
	p.Hosts[3] = 1
	assert.False(t, run(t, ring.AllReduce, 16, schedule.Shape{}, 1, p).Symmetric, "hosts of different sizes")
	p.Hosts = nil
	assert.False(t, run(t, tree.AllReduceDouble, 8, schedule.Shape{}, 1, p).Symmetric)
	assert.False(t, run(t, direct.AllReduceHalvingDoubling, 6, schedule.Shape{}, 1, p).Symmetric)
}

// TestExtrapolation: a long pipeline of many ranks takes what playing all of it says.
func TestExtrapolation(t *testing.T) {
	p := simulate.Default()
	p.Segment = 4 << 10
	for name, alg := range map[string]schedule.Algorithm{"double": tree.AllReduceDouble, "tree": tree.AllReduce} {
		for _, n := range []int{1<<20 + 12345} {
			short := run(t, alg, 1024, schedule.Shape{}, n, p)
			whole, err := simulate.Run(alg, 1024, schedule.Shape{}, n, p, new(simulate.Trace))
			require.NoError(t, err)
			assert.True(t, short.Extrapolated, name)
			assert.False(t, whole.Extrapolated)
			assert.Less(t, short.Segments, whole.Segments)
			assert.InEpsilon(t, whole.Time.Seconds(), short.Time.Seconds(), 0.06, "%s, %d bytes", name, n)
		}
	}
}

// twoLevel does the same on all ranks if hosts and their ranks are powers of two.
var twoLevel = direct.AllReduceTwoLevel(direct.ReduceScatterHalving, direct.AllReduceHalvingDoubling, direct.AllGatherDoubling)

// TestLarge: 65,536 ranks, against closed formulas, and the order that the literature expects.
func TestLarge(t *testing.T) {
	const size = 1 << 16
	p := plain(alpha, beta, 0)
	s := float64(length)
	ringTime := run(t, ring.AllReduce, size, schedule.Shape{}, length, p)
	want := 2 * (size - 1) * (alpha.Seconds() + s/size/beta)
	assert.InDelta(t, want, ringTime.Time.Seconds(), 1e-6*want)
	halving := run(t, direct.AllReduceHalvingDoubling, size, schedule.Shape{}, length, p)
	want = 32*alpha.Seconds() + 2*(size-1)*s/size/beta
	assert.InDelta(t, want, halving.Time.Seconds(), 1e-6*want)
	few, depth := 4096, 12
	if verifytest.Proving() {
		few, depth = size, 16
	}
	trees := run(t, tree.AllReduceDouble, few, schedule.Shape{}, 0, p)
	assert.Equal(t, 2*time.Duration(depth)*alpha, trees.Time)
	p.Local = simulate.Path{Latency: alpha / 10, Bandwidth: 20 * beta}
	for r := range size {
		p.Hosts = append(p.Hosts, r/8)
	}
	two := run(t, twoLevel, size, schedule.Shape{Hosts: p.Hosts}, length, p)
	want = 6*alpha.Seconds()/10 + 2*7*s/8/beta/20 + 26*alpha.Seconds() + 2*(size/8-1)*s/size/beta
	assert.InDelta(t, want, two.Time.Seconds(), 1e-6*want)
	for _, r := range []simulate.Result{ringTime, halving, two} {
		assert.True(t, r.Symmetric)
	}
}

func TestTrace(t *testing.T) {
	var trace simulate.Trace
	_, err := simulate.Run(ring.AllReduce, 3, schedule.Shape{}, 3<<20, simulate.Default(), &trace)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, trace.WriteChrome(&out))
	var doc struct {
		TraceEvents []struct {
			Ph       string
			Pid, Tid int
			Ts, Dur  float64
			Name     string
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &doc))
	seen := map[int]int{}
	for _, ev := range doc.TraceEvents {
		assert.Equal(t, "X", ev.Ph)
		assert.Positive(t, ev.Dur)
		seen[ev.Pid]++
	}
	assert.Len(t, seen, 3)
	assert.Equal(t, seen[0], seen[1])
	assert.NotEmpty(t, doc.TraceEvents[0].Name)
}

func TestCrossovers(t *testing.T) {
	p := simulate.Default()
	lengths := simulate.Lengths(64, 64<<20, 2)
	names := []string{"doubling", "halving", "ring"}
	var sweeps [][]simulate.Point
	for _, alg := range []schedule.Algorithm{direct.AllReduceRecursiveDoubling, direct.AllReduceHalvingDoubling, ring.AllReduce} {
		points, err := simulate.Sweep(alg, 16, schedule.Shape{}, lengths, p)
		require.NoError(t, err)
		sweeps = append(sweeps, points)
	}
	got := simulate.Crossovers(names, sweeps)
	require.GreaterOrEqual(t, len(got), 2)
	assert.Equal(t, "doubling", got[0].Name)
	assert.NotEqual(t, "doubling", got[len(got)-1].Name)
	assert.Equal(t, 64, got[0].From)
	assert.Equal(t, 64<<20, got[len(got)-1].To)
}

func TestRefuses(t *testing.T) {
	good := simulate.Default()
	for name, change := range map[string]func(*simulate.Params){
		"slots":     func(p *simulate.Params) { p.Slots = 0 },
		"segment":   func(p *simulate.Params) { p.Segment = 0 },
		"bandwidth": func(p *simulate.Params) { p.Net.Bandwidth = -1 },
		"latency":   func(p *simulate.Params) { p.Net.Latency = -1 },
		"hosts":     func(p *simulate.Params) { p.Hosts = []int{1} },
	} {
		p := good
		change(&p)
		_, err := simulate.Run(ring.AllReduce, 3, schedule.Shape{}, 1, p, nil)
		assert.Error(t, err, name)
	}
	_, err := simulate.Run(ring.AllReduce, 3, schedule.Shape{}, -1, good, nil)
	assert.Error(t, err)
	_, err = simulate.Run(tree.Broadcast, 3, schedule.Shape{Root: 7}, 1, good, nil)
	assert.Error(t, err)
}

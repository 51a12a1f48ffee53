package collective_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

var (
	overhead    = flag.Bool("overhead", false, "measure what fingerprints, recorder and heartbeats cost; wants an idle machine")
	overheadLog = flag.String("overhead-log", "", "file that keeps the measurements; a table is of all that it has")
)

func workOverhead(ctx context.Context, c *collective.Comm) error {
	return collective.Overhead(ctx, c, func(o collective.OverheadOf) {
		if c.Rank() == 0 {
			b, _ := json.Marshal(o)
			fmt.Printf("%s\n", b)
		}
	})
}

// What fingerprints, flight recorder and pulse cost together: two ranks, each on a core of its own as under
// gccl perf, measure themselves (collective.Overhead).
func TestOverhead(t *testing.T) {
	if !*overhead {
		t.Skip("-overhead measures")
	}
	var out output
	j := job("overhead", 2, &out)
	j.Bind, j.Prefix = true, false
	j.Env = append(j.Env, "GCCL_PROVIDER=shm")
	require.NoError(t, j.Run(t.Context()), "%s", &out)
	var lines strings.Builder
	if *overheadLog != "" {
		earlier, err := os.ReadFile(*overheadLog)
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
		lines.Write(earlier)
	}
	for l := range strings.Lines(out.String()) {
		if strings.HasPrefix(l, "{") {
			lines.WriteString(l)
		}
	}
	if *overheadLog != "" {
		require.NoError(t, os.WriteFile(*overheadLog, []byte(lines.String()), 0o644))
	}
	tellOverhead(t, lines.String())
}

// tellOverhead logs the tables of docs/reliability.md.
func tellOverhead(t *testing.T, lines string) {
	bySize := map[int][]collective.OverheadOf{}
	var sizes []int
	for l := range strings.Lines(lines) {
		var o collective.OverheadOf
		require.NoError(t, json.Unmarshal([]byte(l), &o))
		if bySize[o.Bytes] == nil {
			sizes = append(sizes, o.Bytes)
		}
		bySize[o.Bytes] = append(bySize[o.Bytes], o)
	}
	for _, n := range sizes {
		var ratios, control, counted, shares []float64
		var calls []int64
		for _, o := range bySize[n] {
			if n == 0 {
				t.Logf("| pulse | at rest %.3f %% of a core, without %.3f %% | beside a goroutine that computes %.3f %%, without %.3f %% |",
					o.Resting, o.RestingBare, o.Busy, o.BusyBare)
				continue
			}
			ratios, control, calls = append(ratios, o.Ratios...), append(control, o.Control...), append(calls, o.Call...)
			slices.Sort(o.Call)
			counted, shares = append(counted, o.Counted), append(shares, 100*o.Counted/float64(o.Call[len(o.Call)/2]))
		}
		if n == 0 {
			continue
		}
		slices.Sort(calls)
		slices.Sort(counted)
		slices.Sort(shares)
		m, lo, hi := median95(ratios)
		m0, lo0, hi0 := median95(control)
		t.Logf("| %d | %v | %d | %.1f ns (%.1f … %.1f) | %.2f %% (%.2f … %.2f) | %+.2f %% | %+.2f … %+.2f %% | %+.2f … %+.2f … %+.2f %% | %d |", n,
			time.Duration(calls[len(calls)/2]), bySize[n][0].Messages, counted[len(counted)/2], counted[0], counted[len(counted)-1],
			shares[len(shares)/2], shares[0], shares[len(shares)-1], m, lo, hi, lo0, m0, hi0, len(ratios))
	}
}

// median95 returns the median of ratios and its 95 % interval by order statistics, whatever their distribution, as
// percent above 1.
func median95(ratios []float64) (mid, low, high float64) {
	slices.Sort(ratios)
	n := len(ratios)
	half := 0.98 * math.Sqrt(float64(n))
	at := func(i float64) float64 { return 100 * (ratios[max(0, min(n-1, int(i)))] - 1) }
	return at(float64(n) / 2), at(float64(n)/2 - half), at(float64(n)/2 + half)
}

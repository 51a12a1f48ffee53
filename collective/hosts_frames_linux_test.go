package collective_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host's link delays frames by times that differ, so that they overtake each other, loses some, cuts some short and
// flips bits in some: all results stay right. Then it damages a frame so that TCP does not see it: all ranks
// report the corruption and name its connection, and all go on after Shrink. Then it loses all frames that come
// from the host: the others name its rank and go on without it, and it does not go on.
func TestHostsChaosFrames(t *testing.T) {
	l := newLab(t, 4, false)
	const bad = 1
	w := l.wire(bad)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
	defer cancel()
	rs := l.start(ctx, "weather", l.job(4, "GCCL_HEARTBEAT=4s", "GCCL_BUFFSIZE=256K", "GCCL_CHECKSUM=1", "GCCL_DEBUG=silent"))
	defer rs.wait()
	defer cancel()
	require.NoError(t, rs.await(ctx, "did 10\n"))
	await := func(what string, over func() bool) {
		for !over() {
			require.NoError(t, ctx.Err(), "%s:\n%s", what, rs)
			require.NotContains(t, rs.String(), "wrong", what)
			time.Sleep(10 * time.Millisecond)
		}
	}
	// moreDone waits until some ranks have made 20 more reductions each.
	moreDone := func(what string, ranks ...int) {
		for _, r := range ranks {
			o := rs.outs[r]
			before := strings.Count(o.String(), "did ")
			await(what, func() bool { return strings.Count(o.String(), "did ") >= before+2 })
		}
	}

	var hits, frames atomic.Int64
	every := func(n int64, frame []byte) bool {
		if len(segment(frame)) == 0 || frames.Add(1)%n != 0 {
			return false
		}
		hits.Add(1)
		return true
	}
	for _, c := range []struct {
		name string
		fate fate
	}{
		{"delay", func(rng *rand.Rand, frame []byte) ([]byte, time.Duration) {
			hits.Add(1)
			return late(rng, frame)
		}},
		{"drop", func(_ *rand.Rand, frame []byte) ([]byte, time.Duration) {
			if every(25, frame) {
				frame = nil
			}
			return frame, 0
		}},
		{"cut short", func(rng *rand.Rand, frame []byte) ([]byte, time.Duration) {
			if every(25, frame) {
				frame = frame[:len(frame)-1-rng.IntN(len(segment(frame)))]
			}
			return frame, 0
		}},
		{"flip", func(rng *rand.Rand, frame []byte) ([]byte, time.Duration) {
			if every(25, frame) {
				data := segment(frame)
				data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			}
			return frame, 0
		}},
	} {
		hits.Store(0)
		w.set(c.fate)
		moreDone(c.name, 0, 1, 2, 3)
		await(c.name, func() bool { return hits.Load() > 20 })
		w.set(nil)
		require.NotContains(t, rs.String(), "broke", c.name)
		t.Logf("%s: %d frames", c.name, hits.Load())
	}

	var damaged atomic.Bool
	w.set(func(_ *rand.Rand, frame []byte) ([]byte, time.Duration) {
		if !damaged.Load() && exchange(segment(frame)) {
			damaged.Store(true)
		}
		return frame, 0
	}, toHost)
	for r, o := range rs.outs {
		await("damage", func() bool { return strings.Contains(o.String(), "going 1 ") })
		text := brokeText(o.String(), r, 0)
		t.Logf("rank %d, damage: %s", r, text)
		require.Contains(t, text, "corrupt")
		require.Contains(t, text, fmt.Sprintf("rank %d", bad))
	}
	w.set(nil)
	moreDone("after the damage", 0, 1, 2, 3)

	cut := time.Now()
	w.set(func(*rand.Rand, []byte) ([]byte, time.Duration) { return nil, 0 }, fromHost)
	for _, r := range []int{0, 2, 3} {
		o := rs.outs[r]
		await("cut", func() bool { return strings.Contains(o.String(), "going 2 ") })
		text := brokeText(o.String(), r, 1)
		t.Logf("rank %d, cut: %s", r, text)
		require.Contains(t, text, "peer lost")
		require.Contains(t, text, fmt.Sprintf("rank %d (pid %d on", bad, pidOf(rs.String(), bad)))
	}
	t.Logf("three go on %v after the cut", time.Since(cut).Round(time.Millisecond))
	require.Less(t, time.Since(cut), 15*time.Second*slack)
	await("end of the one cut off", func() bool { return strings.Contains(rs.outs[bad].String(), "shrink: ") })
	require.NotContains(t, rs.outs[bad].String(), "going 2 ")
	moreDone("the three", 0, 2, 3)
}

// brokeText returns what a rank said of the end of a generation.
func brokeText(out string, rank, generation int) string {
	for line := range strings.Lines(out) {
		if m := brokeLine.FindStringSubmatch("[" + strconv.Itoa(rank) + "] " + line); m != nil && m[2] == strconv.Itoa(generation) {
			return m[4]
		}
	}
	return ""
}

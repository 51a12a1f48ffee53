package collective_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job goes on while the link of one of its hosts is slow for a while, and that of another is down for a
// moment. When a host is cut off for good, the three others name its rank, shrink and reduce correctly, and the
// one that is alone does not go on.
func TestHostsChaos(t *testing.T) {
	l := newLab(t, 4, false)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	rs := l.start(ctx, "campaign", l.job(4, "GCCL_HEARTBEAT=2s", "GCCL_BUFFSIZE=256K", "GCCL_DEBUG=silent"))
	defer rs.wait()
	defer cancel()
	require.NoError(t, rs.await(ctx, "pid "))

	rate := func(host int, rate string) {
		l.must("tc", "-n", l.ns(host), "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "30ms")
	}
	link := func(host int, state string) { l.ip("-n", labSwitch, "link", "set", l.port(host), state) }
	rate(3, "20mbit")
	time.Sleep(time.Second) // the faults' own lengths
	rate(3, "1gbit")
	link(1, "down")
	time.Sleep(300 * time.Millisecond)
	link(1, "up")
	time.Sleep(2 * time.Second)
	require.NotContains(t, rs.String(), "broke", "of faults that passed")

	const dead = 2
	pid := pidOf(rs.String(), dead)
	cut := time.Now()
	link(dead, "down")
	saw := func(r int, word string) string {
		for !strings.Contains(rs.outs[r].String(), word) {
			require.NoError(t, ctx.Err(), "rank %d does not say %q:\n%s", r, word, rs)
			time.Sleep(time.Millisecond)
		}
		return rs.outs[r].String()
	}
	for _, r := range []int{0, 1, 3} {
		text := saw(r, "going 1 ")
		for line := range strings.Lines(text) {
			if m := brokeLine.FindStringSubmatch("[" + strconv.Itoa(r) + "] " + line); m != nil {
				ns, _ := strconv.ParseInt(m[3], 10, 64)
				took := time.Unix(0, ns).Sub(cut)
				t.Logf("rank %d, %v after the cut: %s", r, took.Round(time.Millisecond), m[4])
				require.Contains(t, m[4], "peer lost")
				require.Contains(t, m[4], fmt.Sprintf("rank %d (pid %d on", dead, pid))
				require.Less(t, took, 5*time.Second*slack)
			}
		}
		require.Contains(t, text, "broke 0 ")
	}
	require.NotContains(t, saw(dead, "shrink: "), "going 1 ")
}

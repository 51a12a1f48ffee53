package collective_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/simulate"
	"github.com/gccl/gccl/tree"
	"github.com/stretchr/testify/require"
)

func TestHostsTable(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6 only"}[v6], func(t *testing.T) {
			l := newLab(t, labHosts, v6)
			l.run("table", l.job(labRanks)).succeed(t)
		})
	}
}

// payloadRate is what a link of the lab carries of a TCP stream: of a frame's 1514 bytes, 66 are
// headers (Ethernet, IPv4, TCP with timestamps).
const payloadRate = linkRate * 1448 / 1514

// changesPartners has what is shown for comparison: hosts are not in step, some ports get from two at once,
// others from none.
const changesPartners = "GCCL_ALGO=allreduce:direct.AllReduceTwoLevel"

// AllReduce across hosts is as fast as the links allow: within a tenth of the time in which sockets,
// one a host and nothing around them, move as many bytes around a ring of the hosts. The prediction is
// the simulator's.
func TestHostsBandwidth(t *testing.T) {
	l := newLab(t, labHosts, false)
	p := simulate.Default()
	p.Hosts = []int{0, 0, 1, 1, 2, 2, 3, 3}
	p.HostBandwidth, p.Net = payloadRate, simulate.Path{Latency: 100 * time.Microsecond}
	p.Local = simulate.Path{Latency: 2 * time.Microsecond, Bandwidth: 5e9}
	var bound, measured [labSizes]time.Duration
	read := func(rs *ranks, word string, found func(i int, took time.Duration, algorithm string)) {
		rs.succeed(t)
		rows := 0
		for _, o := range rs.outs {
			for _, line := range strings.Split(o.String(), "\n") {
				var i int
				var nanos int64
				var algorithm string
				if n, _ := fmt.Sscanf(line, word+" %d %d %s", &i, &nanos, &algorithm); n == 3 {
					found(i, time.Duration(nanos), algorithm)
					rows++
				}
			}
		}
		require.GreaterOrEqual(t, rows, labSizes, "%s", rs)
	}
	read(l.run("ring", l.job(labHosts, ringEnv+"="+l.prefix)), "ring", func(i int, took time.Duration, _ string) { bound[i] = max(bound[i], took) })
	t.Log("   MiB   links ms  sockets ms  predicted ms  measured ms  of links  of sockets  algorithm")
	for _, algo := range []string{"", "GCCL_ALGO=allreduce:direct.AllReduceTwoLevelRing", changesPartners} {
		measured = [labSizes]time.Duration{}
		read(l.run("reduce", l.job(labRanks, algo)), "reduce", func(i int, took time.Duration, algorithm string) {
			mib := labMiB[i]
			measured[i] = took
			r, err := simulate.Run(algorithmNamed(algorithm), labRanks, schedule.Shape{Hosts: p.Hosts}, mib<<20, p, nil)
			require.NoError(t, err)
			links := crossing(mib) / payloadRate
			t.Logf("%6d %10.1f %11.1f %13.1f %12.1f %9.3f %11.3f  %s", mib, links*1e3, bound[i].Seconds()*1e3, r.Time.Seconds()*1e3,
				took.Seconds()*1e3, took.Seconds()/links, float64(took)/float64(bound[i]), algorithm)
		})
		for i, mib := range labMiB {
			if mib >= 16 && algo != changesPartners {
				require.LessOrEqual(t, measured[i].Seconds(), 1.10*bound[i].Seconds(), "AllReduce of %d MiB with %q", mib, algo)
			}
		}
	}
}

func algorithmNamed(name string) schedule.Algorithm {
	for _, list := range [][]schedule.Info{direct.Algorithms(), ring.Algorithms(), tree.Algorithms()} {
		for _, in := range list {
			if in.Name == name {
				return in.Make
			}
		}
	}
	panic("no algorithm " + name)
}

// A cut link is noticed on both sides of it, in bounded time, and errors name a rank beyond it.
func TestHostsLinkCut(t *testing.T) {
	l := newLab(t, labHosts, false)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	rs := l.start(ctx, "forever", l.job(labRanks))
	require.NoError(t, rs.await(ctx, "ready"))
	cut := time.Now()
	l.ip("-n", labSwitch, "link", "set", l.port(2), "down")
	rs.wait()
	t.Logf("all ranks gave up %v after the cut", time.Since(cut).Round(time.Millisecond))
	require.Less(t, time.Since(cut), 10*time.Second, "%s", rs)
	for r := range rs.outs {
		text := rs.outs[r].String()
		require.Contains(t, text, "peer lost", "rank %d:\n%s", r, rs)
		beyond := []string{"rank 4 (pid", "rank 5 (pid"}
		if r == 4 || r == 5 {
			beyond = []string{"rank 0 (pid", "rank 1 (pid", "rank 2 (pid", "rank 3 (pid", "rank 6 (pid", "rank 7 (pid"}
		}
		require.True(t, containsAny(text, beyond), "rank %d names nobody beyond the cut link:\n%s", r, rs)
	}
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// A killed process is named by the ranks of all hosts.
func TestHostsKill(t *testing.T) {
	l := newLab(t, labHosts, false)
	for _, victim := range []int{0, 5} {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		rs := l.start(ctx, "forever", l.job(labRanks))
		require.NoError(t, rs.await(ctx, "ready"))
		killed := time.Now()
		require.NoError(t, rs.procs[victim].Kill())
		rs.wait()
		cancel()
		t.Logf("all ranks gave up %v after rank %d was killed", time.Since(killed).Round(time.Millisecond), victim)
		require.Less(t, time.Since(killed), 2*time.Second*slack, "%s", rs)
		for r := range rs.outs {
			if r != victim {
				require.Contains(t, rs.outs[r].String(), "peer lost", "rank %d:\n%s", r, rs)
				require.Contains(t, rs.outs[r].String(), fmt.Sprintf("rank %d (pid", victim), "rank %d:\n%s", r, rs)
			}
		}
	}
}

// Links with a delay that varies change nothing but the time.
func TestHostsDelay(t *testing.T) {
	l := newLab(t, labHosts, false)
	for h := range l.hosts {
		l.wire(h).set(late)
	}
	l.run("table", l.job(labRanks)).succeed(t)
}

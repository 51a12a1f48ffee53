package collective_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Mistakes of a user end in an error, on every rank that can know, that says what to do.
func TestHostsMistakes(t *testing.T) {
	l := newLab(t, labHosts, false)
	for _, tc := range []struct {
		name  string
		env   []string
		words []string
	}{
		{"no such interface", []string{"GCCL_SOCKET_IFNAME=eth9"}, []string{"eth9", "this host has", "eth0"}},
		{"a name that means loopback", []string{"GCCL_ROOT=localhost:29400", "GCCL_TIMEOUT=6s"}, []string{"set GCCL_ROOT to an address of"}},
	} {
		rs := l.run("table", l.job(labRanks, tc.env...))
		for r := range rs.outs {
			require.Error(t, rs.ends[r], "%s: rank %d", tc.name, r)
			for _, w := range tc.words {
				require.Contains(t, rs.outs[r].String(), w, "%s: rank %d:\n%s", tc.name, r, rs)
			}
		}
	}
}

// What is sent to the first host from the others vanishes, as behind a firewall that drops it.
func TestHostsBlockedRoot(t *testing.T) {
	l := newLab(t, labHosts, false)
	for h := 1; h < l.hosts; h++ {
		l.ip("-n", l.ns(h), "neigh", "replace", l.addr(0), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
	}
	rs := l.run("table", l.job(labRanks, "GCCL_TIMEOUT=6s"))
	for r := range rs.outs {
		require.Error(t, rs.ends[r], "rank %d", r)
		word := "firewall"
		if r < labRanks/labHosts {
			word = "ranks 2-7"
		}
		require.Contains(t, rs.outs[r].String(), word, "rank %d:\n%s", r, rs)
	}
}

// Ranks that can reach the root but not each other say whom they could not reach.
func TestHostsBlockedPeers(t *testing.T) {
	l := newLab(t, labHosts, false)
	for h := 1; h < l.hosts; h++ {
		l.ip("-n", l.ns(3), "neigh", "replace", l.addr(h%3), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
	}
	l.ip("-n", l.ns(3), "neigh", "del", l.addr(0), "dev", "eth0")
	rs := l.run("table", l.job(labRanks, "GCCL_TIMEOUT=8s"))
	for r := range rs.outs {
		require.Error(t, rs.ends[r], "rank %d:\n%s", r, rs)
	}
	for _, r := range []int{6, 7} {
		require.True(t, containsAny(rs.outs[r].String(), []string{"rank 2", "rank 3", "rank 4", "rank 5"}), "rank %d:\n%s", r, rs)
	}
}

// Rank 0 comes last, when the others have tried for a while.
func TestHostsLateRoot(t *testing.T) {
	l := newLab(t, labHosts, false)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	job := l.job(labRanks)
	others := l.start(ctx, "table", job[1:])
	time.Sleep(3 * time.Second) // what is tested
	root := l.start(ctx, "table", job[:1])
	root.wait()
	others.wait()
	root.succeed(t)
	others.succeed(t)
}

// A rank with another secret than the others is kept out, and told why.
func TestHostsOtherSecret(t *testing.T) {
	l := newLab(t, labHosts, false)
	job := l.job(labRanks, "GCCL_TIMEOUT=6s", "GCCL_SECRET=of the job")
	job[5].env = append(job[5].env, "GCCL_SECRET=of another")
	rs := l.run("table", job)
	for r := range rs.outs {
		require.Error(t, rs.ends[r], "rank %d", r)
	}
	require.Contains(t, rs.outs[5].String(), "secret", "%s", rs)
	require.Contains(t, rs.outs[0].String(), "rank 5", "%s", rs)
}

// Every port on which a rank listens during init is found and bothered, with 3 bytes, 64 KiB of
// noise, silence and handshakes of other jobs: init succeeds every time, and nothing is left of it.
func TestHostsInitAmongStrangers(t *testing.T) {
	l := newLab(t, labHosts, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var beside []place
	for h := range l.hosts {
		beside = append(beside, place{ns: l.ns(h)})
	}
	strangers := l.start(ctx, "strangers", beside)
	l.run("init", l.job(labRanks, "GCCL_SECRET=of the job")).succeed(t)
	cancel()
	strangers.wait()
	for h := range l.hosts {
		require.Contains(t, strangers.outs[h].String(), "struck", "nobody bothered host %d", h)
	}
}

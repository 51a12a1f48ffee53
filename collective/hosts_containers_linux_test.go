package collective_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Network namespaces of one kernel, that nobody calls different hosts, are containers of one host: they share no loopback, and
// no abstract sockets, and are reached by their other addresses. As the launcher says nothing of hosts, or that there is one.
func TestHostsContainers(t *testing.T) {
	l := newLab(t, 2, false)
	l.run("table", l.job(4, "GCCL_HOSTID=", "GCCL_LOCAL_SIZE=")).succeed(t)
	l.run("table", l.job(4, "GCCL_HOSTID=", "GCCL_LOCAL_SIZE=4", "GCCL_LAZY=1")).succeed(t)
}

// A newcomer in a container of its own is taken in, from the same host, and the ranks recover when it ends.
func TestHostsContainerJoins(t *testing.T) {
	l := newLab(t, 2, false)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for _, localSize := range []string{"", "2"} {
		env := []string{"GCCL_HOSTID=", "GCCL_LOCAL_SIZE=" + localSize, "GCCL_RENDEZVOUS=file://" + t.TempDir(), "GCCL_RUN_ID=containers"}
		job := l.job(2, env...)
		job[1].ns = l.ns(0)
		newcomer := l.start(ctx, "joins", []place{{l.ns(1), append(env, "GCCL_TIMEOUT=60s")}})
		rs := l.start(ctx, "grows", job)
		rs.wait()
		newcomer.wait()
		require.NoError(t, ctx.Err(), "%s\n%s", rs, newcomer)
		rs.succeed(t)
		newcomer.succeed(t)
		require.Equal(t, 2, strings.Count(rs.String(), "shrunk to 2"), "%s", rs)
	}
}

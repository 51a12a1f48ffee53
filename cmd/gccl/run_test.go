package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeSSH is a remote shell that stays on this host and makes the ranks of a host believe that it is
// one of its own.
const fakeSSH = `#!/bin/sh
GCCL_HOSTID=$1; export GCCL_HOSTID; shift
exec sh -c "$*"
`

// Ranks on several hosts, as a remote shell makes them, reduce with each other.
func TestRunOnHosts(t *testing.T) {
	cleanEnvironment(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	root := ln.Addr().String()
	require.NoError(t, ln.Close())
	dir := t.TempDir()
	shell, hosts := filepath.Join(dir, "here"), filepath.Join(dir, "hosts")
	require.NoError(t, os.WriteFile(shell, []byte(fakeSSH), 0o755))
	require.NoError(t, os.WriteFile(hosts, []byte("a slots=2\nb slots=2\n"), 0o644))
	t.Setenv("GCCL_RSH", shell)
	for _, where := range [][]string{{"-n", "4", "--hosts", "a:2,b:2"}, {"--hostfile", hosts}} {
		args := append([]string{"run", "-l", "--root", root, "-x", "GCCL_ALLOW_LOOPBACK=1", "-x", "GCCL_TIMEOUT=30s", "-x", asProgram + "=1"}, where...)
		out, errs, code := program(t, append(args, "--", os.Args[0], "perf", "allreduce", "-b", "4K", "-e", "4K", "-n", "2", "-w", "1")...)
		require.Zero(t, code, "%s\n%s", out, errs)
		require.Contains(t, out, "[0] # Out of bounds values : 0 OK")
		require.Contains(t, out, "[0] #  Rank  3 ", out)
		require.NotContains(t, strings.ReplaceAll(out, "[0] ", ""), "] ", "only rank 0 reports")
	}
	_, errs, code := program(t, "run", "--hosts", "a:1,b:1", "--rsh", "/no/such/shell", "true")
	require.Equal(t, 127, code, errs)
}

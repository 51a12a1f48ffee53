package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slurm is a Slurm of this test's own: a controller and some daemons that pretend to be nodes, all
// children of the test. It authenticates nobody and listens on loopback.
type slurm struct{ conf string }

// newSlurm starts a Slurm of nodes with 4 tasks each.
func newSlurm(t *testing.T, nodes int) slurm {
	t.Helper()
	dir := t.TempDir()
	host, err := os.Hostname()
	require.NoError(t, err)
	host, _, _ = strings.Cut(host, ".")
	ports := freePorts(t, nodes+1)
	var b strings.Builder
	fmt.Fprintf(&b, "ClusterName=test\nSlurmctldHost=%s(127.0.0.1)\nSlurmctldPort=%d\nSlurmUser=root\nSlurmdUser=root\n", host, ports[nodes])
	for _, line := range []string{"AuthType=auth/none", "CredType=cred/none", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
		"SwitchType=switch/none", "MpiDefault=none", "SchedulerType=sched/builtin", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU",
		"ReturnToService=2", "SlurmdParameters=config_overrides", "MailProg=/bin/true", "KillWait=2"} {
		b.WriteString(line + "\n")
	}
	for name, path := range map[string]string{"StateSaveLocation": "state", "SlurmdSpoolDir": "spool-%n", "SlurmctldPidFile": "ctld.pid", "SlurmdPidFile": "d-%n.pid"} {
		fmt.Fprintf(&b, "%s=%s\n", name, filepath.Join(dir, path))
	}
	for n := range nodes {
		fmt.Fprintf(&b, "NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=4 State=UNKNOWN\n", n+1, host, ports[n])
		require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf("spool-n%d", n+1)), 0o755))
	}
	b.WriteString("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
	s := slurm{filepath.Join(dir, "slurm.conf")}
	require.NoError(t, os.WriteFile(s.conf, []byte(b.String()), 0o644))
	var log output
	daemon := func(name string, args ...string) {
		path, err := exec.LookPath(name)
		if err != nil {
			path = "/usr/sbin/" + name // which is not in everybody's path
		}
		cmd := exec.Command(path, append(args, "-D", "-f", s.conf)...)
		cmd.Stdout, cmd.Stderr = &log, &log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			stop := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			_ = cmd.Wait()
			stop.Stop()
		})
	}
	daemon("slurmctld", "-c")
	for n := range nodes {
		daemon("slurmd", "-N", fmt.Sprintf("n%d", n+1))
	}
	require.Eventually(t, func() bool {
		out, err := s.command(t.Context(), "sinfo", "-h", "-N", "-t", "idle").Output()
		return err == nil && bytes.Count(out, []byte("\n")) == nodes
	}, 30*time.Second, 100*time.Millisecond, "the nodes are not idle:\n%s", &log)
	return s
}

// command is a command of Slurm's for this Slurm.
func (s slurm) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SLURM_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "SLURM_CONF="+s.conf)
	return cmd
}

// freePorts are TCP ports that nobody listens on now.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

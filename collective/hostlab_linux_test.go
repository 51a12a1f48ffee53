package collective_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lab is a network of hosts, which are network namespaces: each has an interface eth0, joined to a
// switch (a bridge in a namespace of its own, so that nothing touches this machine's network) by a
// link whose both directions are limited by a token bucket.
//
//	gccl-lab-h0 eth0 ─── p0 ┐
//	gccl-lab-h1 eth0 ─── p1 ┤ br0 in gccl-lab-sw
//	…                       ┘
type lab struct {
	t      *testing.T
	hosts  int
	prefix string // of addresses: a host's number completes it
}

const (
	labPrefix = "gccl-lab-"
	labSwitch = labPrefix + "sw"
	linkRate  = 1e9 / 8 // bytes per second of a link, each way, with all headers
)

// newLab makes the hosts, or skips the test. It removes those that an earlier run left, with their
// processes.
func newLab(t *testing.T, hosts int, v6 bool) *lab {
	t.Helper()
	if !*acrossHosts {
		t.Skip("needs -hosts (make test-hosts): makes network namespaces")
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s of iproute2 is not installed", tool)
		}
	}
	// One lab a machine: the names are fixed so that leftovers are found.
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "gccl-lab.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	for {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	require.NoError(t, err)
	l := &lab{t: t, hosts: hosts, prefix: "10.77.0."}
	if v6 {
		l.prefix = "fd77::"
	}
	l.remove()
	t.Cleanup(l.remove)
	if out, err := exec.Command("ip", "netns", "add", labSwitch).CombinedOutput(); err != nil {
		t.Skipf("this kernel makes no network namespaces here: %v: %s", err, out)
	}
	l.ip("-n", labSwitch, "link", "add", "br0", "type", "bridge")
	l.ip("-n", labSwitch, "link", "set", "br0", "up")
	for h := range hosts {
		ns := l.ns(h)
		l.ip("netns", "add", ns)
		l.ip("-n", ns, "link", "set", "lo", "up")
		if v6 {
			l.ip("-n", ns, "addr", "del", "127.0.0.1/8", "dev", "lo")
		}
		l.ip("-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", l.port(h), "netns", labSwitch)
		l.join(h)
	}
	return l
}

// join gives a host's eth0 its address, plugs the other end into the switch, and limits both.
func (l *lab) join(h int) {
	l.t.Helper()
	ns, port := l.ns(h), l.port(h)
	if strings.Contains(l.prefix, ":") {
		l.ip("-n", ns, "addr", "add", l.addr(h)+"/64", "dev", "eth0", "nodad")
	} else {
		l.ip("-n", ns, "addr", "add", l.addr(h)+"/24", "dev", "eth0")
	}
	l.ip("-n", labSwitch, "link", "set", port, "master", "br0", "up")
	l.ip("-n", ns, "link", "set", "eth0", "up")
	for _, end := range [][2]string{{ns, "eth0"}, {labSwitch, port}} {
		l.must("tc", "-n", end[0], "qdisc", "add", "dev", end[1], "root", "tbf", "rate", "1gbit", "burst", "128kb", "latency", "30ms")
	}
}

func (l *lab) ns(host int) string   { return labPrefix + "h" + strconv.Itoa(host) }
func (l *lab) port(host int) string { return "p" + strconv.Itoa(host) }
func (l *lab) addr(host int) string { return l.prefix + strconv.Itoa(host+1) }

// root is where rank 0 listens.
func (l *lab) root() string {
	if strings.Contains(l.prefix, ":") {
		return "[" + l.addr(0) + "]:29400"
	}
	return l.addr(0) + ":29400"
}

func (l *lab) ip(args ...string) { l.t.Helper(); l.must("ip", args...) }

func (l *lab) try(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (l *lab) must(name string, args ...string) {
	l.t.Helper()
	out, err := l.try(name, args...)
	require.NoError(l.t, err, "%s %s: %s", name, strings.Join(args, " "), out)
}

// remove ends what runs in the lab's namespaces and deletes them, also those of a run that crashed.
func (l *lab) remove() {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), labPrefix) {
			continue
		}
		pids, _ := exec.Command("ip", "netns", "pids", e.Name()).Output()
		for _, pid := range strings.Fields(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
		if out, err := exec.Command("ip", "netns", "del", e.Name()).CombinedOutput(); err != nil {
			l.t.Errorf("namespace %s stays: %v: %s", e.Name(), err, out)
		}
	}
}

// ranks are the processes of a job in a lab, or helpers beside it.
type ranks struct {
	procs []*os.Process
	outs  []*output
	ends  []error
	wg    sync.WaitGroup
}

// place is where a process runs and what it is told beside the lab's variables.
type place struct {
	ns  string
	env []string
}

// job places n ranks block by block on the hosts. env goes to all.
func (l *lab) job(n int, env ...string) []place {
	per := (n + l.hosts - 1) / l.hosts
	places := make([]place, n)
	for r := range places {
		h := r / per
		places[r] = place{l.ns(h), append([]string{
			"GCCL_RANK=" + strconv.Itoa(r), "GCCL_SIZE=" + strconv.Itoa(n), "GCCL_LOCAL_RANK=" + strconv.Itoa(r%per),
			"GCCL_LOCAL_SIZE=" + strconv.Itoa(min(per, n-h*per)), "GCCL_ROOT=" + l.root(),
			"GCCL_HOSTID=" + l.ns(h), "GCCL_TIMEOUT=60s",
		}, env...)}
	}
	return places
}

// start runs this test binary in the places. All processes end with ctx, and with this process.
func (l *lab) start(ctx context.Context, work string, places []place) *ranks {
	rs := &ranks{procs: make([]*os.Process, len(places)), outs: make([]*output, len(places)), ends: make([]error, len(places))}
	ready := make(chan error, len(places))
	for i, p := range places {
		rs.outs[i] = new(output)
		rs.wg.Add(1)
		go func() {
			defer rs.wg.Done()
			// The parent-death signal is tied to the thread that forks.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cmd := exec.CommandContext(ctx, "ip", "netns", "exec", p.ns, os.Args[0])
			cmd.Env = append(append(os.Environ(), workEnv+"="+work), p.env...)
			cmd.Stdout, cmd.Stderr = rs.outs[i], rs.outs[i]
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			err := cmd.Start()
			rs.procs[i] = cmd.Process
			ready <- err
			if err == nil {
				rs.ends[i] = cmd.Wait()
			}
		}()
	}
	for range places {
		require.NoError(l.t, <-ready)
	}
	return rs
}

func (rs *ranks) wait() { rs.wg.Wait() }

// await waits until every process has printed a word.
func (rs *ranks) await(ctx context.Context, word string) error {
	for _, o := range rs.outs {
		for !strings.Contains(o.String(), word) {
			if ctx.Err() != nil {
				return fmt.Errorf("%w; the ranks said:\n%s", ctx.Err(), rs)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func (rs *ranks) String() string {
	var b bytes.Buffer
	for i, o := range rs.outs {
		for _, line := range strings.Split(strings.TrimSpace(o.String()), "\n") {
			fmt.Fprintf(&b, "[%d] %s\n", i, line)
		}
	}
	return b.String()
}

// run runs a job to its end.
func (l *lab) run(work string, places []place) *ranks {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 90*time.Second)
	defer cancel()
	rs := l.start(ctx, work, places)
	rs.wait()
	require.NoError(l.t, ctx.Err(), "%s", rs)
	return rs
}

// succeed fails the test unless all ranks ended well.
func (rs *ranks) succeed(t *testing.T) {
	t.Helper()
	for i, err := range rs.ends {
		require.NoError(t, err, "rank %d:\n%s", i, rs)
	}
}

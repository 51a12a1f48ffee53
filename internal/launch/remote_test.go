package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A remote shell for one host: it drops options, notes the host, and lets sh execute the rest, as sshd
// does, as a child of its own, so that this shell's end is like the end of a connection.
const fakeShell = `#!/bin/sh
while :; do case "$1" in -*) shift;; *) break;; esac; done
FAKE_HOST=$1 GCCL_HOSTID=$1; export FAKE_HOST GCCL_HOSTID; shift
[ "$FAKE_HOST" = unreachable ] && { echo "ssh: no route to host" >&2; exit 255; }
[ -n "$FAKE_PIDS" ] && echo "$FAKE_HOST $$" >> "$FAKE_PIDS"
sh -c "$*"
exit $?
`

// shell writes a remote shell into a directory of the test's.
func shell(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fakessh")
	require.NoError(t, os.WriteFile(name, []byte(fakeShell), 0o755))
	return name
}

func farJob(t *testing.T, out *bytes.Buffer, hosts string, args ...string) *Job {
	t.Helper()
	hs, err := ParseHosts(hosts)
	require.NoError(t, err)
	size := 0
	for _, h := range hs {
		size += h.Slots
	}
	return &Job{Args: args, Size: size, Hosts: hs, Shell: []string{shell(t), "-q"}, Stdout: out, Stderr: out, Grace: 500 * time.Millisecond}
}

func TestFarRanksKnowTheirPlace(t *testing.T) {
	t.Setenv("GCCL_OF_THE_LAUNCHER", "it's here; $HOME")
	var out bytes.Buffer
	j := farJob(t, &out, "a:2,localhost:1,b:1", "sh", "-c",
		`echo "$GCCL_RANK/$GCCL_SIZE $GCCL_LOCAL_RANK/$GCCL_LOCAL_SIZE on ${FAKE_HOST:-here} $GCCL_ROOT $RANK$WORLD_SIZE$LOCAL_RANK$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT '$GCCL_OF_THE_LAUNCHER' $X $1 $(pwd)"; [ -n "$GCCL_SECRET$GCCL_RUN_ID" ]`, "x", "a 'b' \"c\" $d")
	j.Env, j.Torch, j.Prefix = []string{"X=1  2"}, true, true
	require.NoError(t, j.Run(t.Context()), out.String())
	dir, err := os.Getwd()
	require.NoError(t, err)
	tail := ` a:29500 'it's here; $HOME' 1  2 a 'b' "c" $d ` + dir
	require.ElementsMatch(t, []string{
		"[0] 0/4 0/2 on a a 0402" + tail, "[1] 1/4 1/2 on a a 1412" + tail,
		"[2] 2/4 0/1 on here a 2401" + tail, "[3] 3/4 0/1 on b a 3401" + tail,
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}

func TestASecretIsNotInTheListOfProcesses(t *testing.T) {
	var out bytes.Buffer
	j := farJob(t, &out, "a", "sh", "-c", `tr '\0' ' ' < /proc/$PPID/cmdline; echo; echo "secret $GCCL_SECRET"`)
	j.Env = []string{"GCCL_SECRET=not for others"}
	require.NoError(t, j.Run(t.Context()), out.String())
	require.Contains(t, out.String(), "secret not for others")
	require.Equal(t, 1, strings.Count(out.String(), "not for others"), out.String())
	require.Contains(t, out.String(), "read -r line", "the command of the remote sh is not what was looked at")
}

func TestRankZeroHereIsFoundByThisHostsAddresses(t *testing.T) {
	j := Job{Args: []string{"true"}, Size: 2, Hosts: []Host{{"localhost", 1}, {"a", 1}}}
	seats, err := j.seats()
	require.NoError(t, err)
	m, err := j.meeting(seats)
	addrs, addrErr := ownAddrs()
	require.NoError(t, addrErr)
	if len(addrs) == 0 {
		require.ErrorContains(t, err, "say where rank 0 listens")
		return
	}
	require.NoError(t, err)
	require.Nil(t, m.file)
	require.Equal(t, "GCCL_ROOT="+strings.Join(addrs, ","), m.env[0])
	j.Root = "10.1.2.3:4000"
	m, err = j.meeting(seats)
	require.NoError(t, err)
	require.Equal(t, "GCCL_ROOT=10.1.2.3:4000", m.env[0])
}

// exit is the end of a job that must fail.
func exit(t *testing.T, err error) *ExitError {
	t.Helper()
	var e *ExitError
	require.True(t, errors.As(err, &e), "%v", err)
	return e
}

func TestFarExitCodes(t *testing.T) {
	for code, script := range map[int]string{
		7:   `[ $GCCL_RANK = 1 ] && exit 7; sleep 60`,
		137: `[ $GCCL_RANK = 1 ] && kill -KILL $$; sleep 60`,
	} {
		var out bytes.Buffer
		e := exit(t, farJob(t, &out, "a:1,b:1", "sh", "-c", script).Run(t.Context()))
		require.Equal(t, 1, e.Rank, "%v\n%s", e, &out)
		require.Equal(t, code, e.Code, "%v\n%s", e, &out)
		require.Contains(t, e.Error(), "on b: ")
	}
	var out bytes.Buffer
	e := exit(t, farJob(t, &out, "a:1,unreachable:1", "sleep", "60").Run(t.Context()))
	require.Equal(t, 255, e.Code)
	require.Contains(t, e.Error(), "rank 1: on unreachable: the remote shell")
	require.Contains(t, out.String(), "no route to host")
	e = exit(t, farJob(t, &out, "a", "/no/such/program").Run(t.Context()))
	require.Equal(t, 127, e.Code)

	t.Setenv("GCCL_TEXT", "two\nlines")
	e = exit(t, farJob(t, &out, "a", "true").Run(t.Context()))
	require.ErrorContains(t, e, "GCCL_TEXT: a value of several lines")
}

// When the launcher is told to stop, so are ranks on other hosts, with their children, first kindly.
func TestFarSignals(t *testing.T) {
	for name, script := range map[string]string{
		// A child that is not yet what it becomes may lose a signal to its shell's trap.
		"ends by itself": `trap 'echo bye; exit 3' TERM; sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; echo "pids $$ $!"; echo ready; while :; do sleep 0.05; done`,
		"is deaf":        `trap '' TERM; sleep 60 & echo "pids $$ $!"; echo ready; while :; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			ctx, cancel := context.WithCancelCause(t.Context())
			j := farJob(t, &out, "a:1,localhost:1,b:1", "sh", "-c", script)
			seen := &watched{to: &out, word: "ready", times: 3, then: func() { cancel(errors.New("stop it")) }}
			j.Stdout = seen
			require.EqualError(t, j.Run(ctx), "stop it")
			if name == "ends by itself" {
				require.Equal(t, 3, strings.Count(out.String(), "bye"), &out)
			}
			requireGone(t, out.String(), 3)
		})
	}
}

// A remote shell that dies takes the job with it, also its own rank.
func TestADeadShellEndsTheJob(t *testing.T) {
	var out bytes.Buffer
	pids := filepath.Join(t.TempDir(), "pids")
	t.Setenv("FAKE_PIDS", pids)
	j := farJob(t, &out, "a:1,b:1", "sh", "-c", `echo "pids $$"; echo ready; while :; do sleep 0.05; done`)
	j.Stdout = &watched{to: &out, word: "ready", times: 2, then: func() {
		b, err := os.ReadFile(pids)
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			var host string
			var pid int
			_, err := fmt.Sscan(line, &host, &pid)
			require.NoError(t, err)
			if host == "b" {
				require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
	}}
	e := exit(t, j.Run(t.Context()))
	require.Equal(t, 1, e.Rank)
	require.Contains(t, e.Error(), "on b: the remote shell")
	requireGone(t, out.String(), 2)
}

// watched calls then when a word has come out some times.
type watched struct {
	to    *bytes.Buffer
	word  string
	times int
	then  func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	if w.times > 0 && strings.Count(w.to.String(), w.word) >= w.times {
		w.times = 0
		w.then()
	}
	return n, err
}

// requireGone waits for the end of the processes that lines "pids P…" name, so many lines.
func requireGone(t *testing.T, out string, lines int) {
	t.Helper()
	n := 0
	for _, line := range strings.Split(out, "\n") {
		_, list, ok := strings.Cut(line, "pids ")
		if !ok {
			continue
		}
		n++
		for _, word := range strings.Fields(list) {
			var pid int
			_, err := fmt.Sscan(word, &pid)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 10*time.Millisecond, "process %d lives on", pid)
		}
	}
	require.Equal(t, lines, n, out)
}

// alive says whether a process runs: it is there, and no zombie that nobody has collected.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}

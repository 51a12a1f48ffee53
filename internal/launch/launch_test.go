package launch

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asRank makes the test binary a rank that takes the socket its launcher bound.
const asRank = "GCCL_TEST_AS_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(asRank) != "" {
		os.Exit(beRank())
	}
	goleak.VerifyTestMain(m)
}

func beRank() int {
	cfg, _, err := bootstrap.FromEnv(os.LookupEnv)
	if err == nil {
		err = Inherit(&cfg)
	}
	var g bootstrap.Group
	if err == nil {
		if cfg.Rank == 0 && cfg.Listener == nil {
			err = errors.New("rank 0 got no socket")
		} else {
			g, err = bootstrap.Connect(context.Background(), cfg)
		}
	}
	if err == nil {
		err = errors.Join(g.Barrier(context.Background()), g.Close())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return 0
}

func job(out *bytes.Buffer, n int, script string) *Job {
	return &Job{Args: []string{"sh", "-c", script}, Size: n, Stdout: out, Stderr: out, Grace: 300 * time.Millisecond}
}

func TestRanksMeetAtTheInheritedSocket(t *testing.T) {
	var out bytes.Buffer
	j := Job{Args: []string{os.Args[0]}, Size: 3, Env: []string{asRank + "=1", "GCCL_TIMEOUT=30s"}, Stdout: &out, Stderr: &out}
	require.NoError(t, j.Run(t.Context()), out.String())

	t.Setenv(RootFD, "seven")
	require.ErrorContains(t, Inherit(&bootstrap.Config{}), RootFD)
	t.Setenv(RootFD, "900")
	require.ErrorContains(t, Inherit(&bootstrap.Config{}), RootFD+"=900")
	require.NoError(t, Inherit(&bootstrap.Config{Rank: 1})) // it is rank 0's
	require.NoError(t, os.Unsetenv(RootFD))
	require.NoError(t, Inherit(&bootstrap.Config{}))
}

func TestEnvironmentOfRanks(t *testing.T) {
	var out bytes.Buffer
	j := job(&out, 2, `echo "$GCCL_RANK/$GCCL_SIZE $GCCL_LOCAL_RANK/$GCCL_LOCAL_SIZE ${RANK-none} $GCCL_ROOT fd=$GCCL_ROOT_FD $X"`)
	j.Env, j.Prefix = []string{"X=y"}, true
	require.NoError(t, j.Run(t.Context()))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	for _, l := range lines {
		r := l[1:2]
		fd := map[string]string{"0": "3", "1": ""}[r]
		require.Regexp(t, `^\[`+r+`\] `+r+`/2 `+r+`/2 none 127\.0\.0\.1:\d+ fd=`+fd+` y$`, l)
	}
	out.Reset()
	j = job(&out, 1, `echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT`)
	j.Torch = true
	require.NoError(t, j.Run(t.Context()))
	require.Regexp(t, `^0/1 0/1 127\.0\.0\.1 \d+\n$`, out.String())
	port, err := strconv.Atoi(strings.Fields(out.String())[3])
	require.NoError(t, err)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) // free for the program
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// The first rank that fails ends the job, kindly and then not, and decides its exit code.
func TestTheFirstFailureEndsTheJob(t *testing.T) {
	var out bytes.Buffer
	e := exit(t, job(&out, 3, `[ $GCCL_RANK = 1 ] && exit 7; trap 'echo bye; exit 3' TERM; sleep 60 & echo "pids $$ $!"; while :; do sleep 0.05; done`).Run(t.Context()))
	require.Equal(t, []int{1, 7}, []int{e.Rank, e.Code})
	var x *exec.ExitError
	require.ErrorAs(t, e, &x)

	out.Reset() // deaf ranks
	e = exit(t, job(&out, 2, `trap '' TERM; echo "pids $$"; [ $GCCL_RANK = 0 ] && kill -KILL $$; while :; do sleep 0.05; done`).Run(t.Context()))
	require.Equal(t, []int{0, 128 + 9}, []int{e.Rank, e.Code})
	requireGone(t, out.String(), strings.Count(out.String(), "pids"))

	e = exit(t, (&Job{Args: []string{"/no/such/program"}, Size: 2}).Run(t.Context()))
	require.Equal(t, []int{0, 127}, []int{e.Rank, e.Code})
	require.Error(t, (&Job{Args: []string{"true"}}).Run(t.Context()), "no ranks")
}

// A rank that ended well does not fail the job because a process that it has left behind keeps its output open.
func TestRankLeavesProcessBehind(t *testing.T) {
	var out bytes.Buffer
	j := job(&out, 2, `[ $GCCL_RANK = 1 ] && { sleep 600 & echo "left $!"; }; echo done`)
	require.NoError(t, j.Run(t.Context()))
	require.Equal(t, 2, strings.Count(out.String(), "done"))
	pid, err := strconv.Atoi(regexp.MustCompile(`left (\d+)`).FindStringSubmatch(out.String())[1])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL), "it was not ended with the job")
}

func TestSurvivorsGoOn(t *testing.T) {
	var out bytes.Buffer
	j := job(&out, 3, `[ $GCCL_RANK = 1 ] && exit 7; sleep 0.3; echo done`)
	j.Survive = true
	started := 0
	j.Started = func(ps []*os.Process) { started = len(ps) }
	require.Equal(t, 7, exit(t, j.Run(t.Context())).Code)
	require.Equal(t, 2, strings.Count(out.String(), "done"))
	require.Equal(t, 3, started)
}

func TestTheEndOfTheContext(t *testing.T) {
	var out bytes.Buffer
	ctx, cancel := context.WithCancelCause(t.Context())
	j := job(&out, 2, `sleep 60 & echo "pids $$ $!"; wait`)
	j.Stdout = &watched{to: &out, word: "pids", times: 2, then: func() { cancel(errors.New("enough")) }}
	require.EqualError(t, j.Run(ctx), "enough")
	requireGone(t, out.String(), 2)
}

// Ranks do not outlive their launcher, whatever ends it.
func TestRanksDieWithTheLauncher(t *testing.T) {
	if os.Getenv("GCCL_TEST_LAUNCHER") != "" {
		_ = (&Job{Args: []string{"sh", "-c", `echo "pids $$"; exec sleep 60`}, Size: 2}).Run(t.Context())
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestRanksDieWithTheLauncher$")
	cmd.Env = append(os.Environ(), "GCCL_TEST_LAUNCHER=1")
	var out bytes.Buffer
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout = &watched{to: &out, word: "pids", times: 2, then: func() { _ = cmd.Process.Kill() }}
	require.Error(t, cmd.Run())
	requireGone(t, out.String(), 2)
}

// Lines of several ranks do not mix, and what is not whole at the end comes out, too.
func TestOutputByLines(t *testing.T) {
	var out bytes.Buffer
	j := job(&out, 4, `i=0; while [ $i -lt 50 ]; do printf "rank $GCCL_RANK "; printf "line\n"; i=$((i+1)); done; printf "end $GCCL_RANK"`)
	require.NoError(t, j.Run(t.Context()))
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, got, 4*51)
	for _, l := range got {
		require.Regexp(t, `^(rank \d line|end \d)$`, l)
	}

	out.Reset() // a line without an end is cut
	w := (&lines{out: &out, err: &out}).writer("> ", true)
	for range 3 {
		n, err := w.Write(bytes.Repeat([]byte("x"), maxLine/2))
		require.NoError(t, err)
		require.Equal(t, maxLine/2, n)
	}
	_, _ = w.Write([]byte("y\nz"))
	w.flush()
	w.flush()
	require.Equal(t, "> "+strings.Repeat("x", maxLine)+"\n> "+strings.Repeat("x", maxLine/2)+"y\n> z\n", out.String())
}

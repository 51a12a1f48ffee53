package collective_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// hostEnv names this host in a job across hosts, as "0/2": TestVerbsHosts runs on each of them at once,
// with GCCL_ROOT set (rdma/verbs/lab/test).
const hostEnv = "GCCL_TEST_HOST"

// overVerbs is the environment of ranks that may use nothing else.
var overVerbs = []string{"GCCL_PROVIDER=verbs", "GCCL_STRICT=1"}

// verbsError says why verbs cannot be used here; nil if it can.
func verbsError(t *testing.T) error {
	t.Helper()
	c, err := collective.New(t.Context(), collective.Config{Provider: "verbs", Strict: true, Bootstrap: bootstrap.Config{Size: 1}})
	if err != nil {
		require.ErrorIs(t, err, collective.ErrUnavailable)
		return err
	}
	require.NoError(t, c.Close())
	return nil
}

func needVerbs(t *testing.T) {
	t.Helper()
	if err := verbsError(t); err != nil {
		t.Skipf("needs RDMA, as in a VM of rdma/verbs/lab/rxelab: %v", err)
	}
}

// workCases makes the calls of the table of collectives, and tells over which providers.
func workCases(ctx context.Context, c *collective.Comm) error {
	x := make([]float32, 100)
	info, err := c.Plan(collective.Call{Kind: collective.AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: tensor.Sum})
	if err != nil {
		return err
	}
	start := time.Now()
	calls, err := collective.RunTable(c, 5, 97) // an emulated host makes some 20 a second
	if err != nil {
		return err
	}
	granted, err := collective.RunGranted(c)
	if err != nil {
		return err
	}
	fmt.Printf("%d calls right over %s in %v, %d messages placed\n", calls+granted, strings.Join(info.Providers, "+"), time.Since(start).Round(time.Millisecond), collective.Placed(c))
	return workTable(ctx, c)
}

// All collectives over verbs between the processes of one host.
func TestVerbs(t *testing.T) {
	needVerbs(t)
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			var out output
			j := job("cases", n, &out)
			j.Env = append(j.Env, overVerbs...)
			require.NoError(t, j.Run(t.Context()), "%s", &out)
			require.Equal(t, n, strings.Count(out.String(), "calls right over verbs in"), "%s", &out)
			t.Logf("%s", &out)
		})
	}
}

// All collectives over several queue pairs a connection, on one device and on two.
func TestVerbsRails(t *testing.T) {
	needVerbs(t)
	for _, hca := range []string{"", "rxe"} {
		t.Run("hca="+hca, func(t *testing.T) {
			var out output
			j := job("cases", 2, &out)
			j.Env = append(j.Env, append(overVerbs, "GCCL_IB_QPS=2", "GCCL_IB_HCA="+hca)...)
			require.NoError(t, j.Run(t.Context()), "%s", &out)
			require.Equal(t, 2, strings.Count(out.String(), "calls right over verbs in"), "%s", &out)
			t.Logf("%s", &out)
		})
	}
}

// A rank is killed: the others return an error that names it. Only the keep-alive can tell, so that it
// takes some 3 s; the bound is for hosts whose processors are lent out.
func TestVerbsKill(t *testing.T) {
	needVerbs(t)
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprintf("rank=%d", victim), func(t *testing.T) {
			var out output
			j := job("forever", 3, &out)
			j.Env, j.Survive = append(j.Env, overVerbs...), true
			killed := make(chan time.Time, 1)
			j.Started = func(ps []*os.Process) {
				go func() {
					out.await("ready", 3)
					killed <- time.Now()
					_ = ps[victim].Kill()
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			require.Error(t, j.Run(ctx))
			took := time.Since(<-killed)
			require.Less(t, took, 40*time.Second, "%s", &out)
			survivorsName(t, &out, victim, 0, 1, 2)
			t.Logf("FAULT | rank of 3 killed in an allreduce | %v | %s", took.Round(time.Millisecond), &out)
		})
	}
}

// await returns when a word was printed n times; tests have their own time limits.
func (o *output) await(word string, n int) {
	for strings.Count(o.String(), word) < n {
		time.Sleep(time.Millisecond)
	}
}

// survivorsName requires that every rank but the victim has failed with an error that names it.
func survivorsName(t *testing.T, out *output, victim int, ranks ...int) {
	t.Helper()
	for _, r := range ranks {
		if r == victim {
			continue
		}
		said := false
		for line := range strings.Lines(out.String()) {
			said = said || strings.HasPrefix(line, fmt.Sprintf("[%d] allreduce", r)) &&
				strings.Contains(line, "peer lost") && strings.Contains(line, fmt.Sprintf("rank %d (pid", victim))
		}
		require.True(t, said, "rank %d does not name rank %d:\n%s", r, victim, out)
	}
}

// Two ranks on each of several hosts: shared memory inside a host, verbs across.
func TestVerbsHosts(t *testing.T) {
	var host, hosts int
	if _, err := fmt.Sscanf(os.Getenv(hostEnv), "%d/%d", &host, &hosts); err != nil {
		t.Skipf("runs on several hosts at once, started by rdma/verbs/lab/test: needs %s=HOST/HOSTS", hostEnv)
	}
	needVerbs(t)
	mine := []int{2 * host, 2*host + 1}
	t.Run("Table", func(t *testing.T) {
		var out output
		ps, wait := startRanks(t, "cases", mine, 2*hosts, &out, nil)
		require.NoError(t, wait(), "%s", &out)
		require.Equal(t, len(ps), strings.Count(out.String(), "calls right over shm+verbs in"), "%s", &out)
		t.Logf("%s", &out)
	})
	t.Run("Kill", func(t *testing.T) {
		var out output
		victim := 2*hosts - 1
		ps, wait := startRanks(t, "forever", mine, 2*hosts, &out, nil)
		out.await("ready", len(ps))
		start := time.Now()
		if host == hosts-1 {
			require.NoError(t, ps[1].Kill())
		}
		require.Error(t, wait())
		survivorsName(t, &out, victim, mine...)
		t.Logf("FAULT | rank of 4 on 2 hosts killed in an allreduce | %v | %s", time.Since(start).Round(time.Millisecond), &out)
	})
}

// startRanks starts this host's ranks of a job, with what else each finds in its environment; wait returns their errors.
func startRanks(t *testing.T, work string, mine []int, size int, out *output, more func(rank int) []string) (ps []*os.Process, wait func() error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(mine))
	for i, r := range mine {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), workEnv+"="+work, "GCCL_TIMEOUT=60s", "GCCL_PROVIDER=shm,verbs", "GCCL_STRICT=1",
			"GCCL_RANK="+strconv.Itoa(r), "GCCL_SIZE="+strconv.Itoa(size),
			"GCCL_LOCAL_RANK="+strconv.Itoa(i), "GCCL_LOCAL_SIZE="+strconv.Itoa(len(mine)))
		if more != nil {
			cmd.Env = append(cmd.Env, more(r)...)
		}
		w := &prefixed{out: out, prefix: fmt.Sprintf("[%d] ", r)}
		cmd.Stdout, cmd.Stderr = w, w
		require.NoError(t, cmd.Start())
		ps = append(ps, cmd.Process)
		wg.Go(func() { errs[i] = cmd.Wait() })
	}
	return ps, func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

// prefixed puts a prefix before what a rank writes, which is whole lines.
type prefixed struct {
	out    *output
	prefix string
}

func (p *prefixed) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if _, err := p.out.Write([]byte(p.prefix + line)); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// One program runs with and without RDMA: alone and strict it says why not, in a list it goes on with
// the next.
func TestVerbsUnavailable(t *testing.T) {
	err := verbsError(t)
	if err == nil {
		t.Skip("verbs works here")
	}
	var out output
	j := job("table", 2, &out)
	j.Env = append(j.Env, overVerbs...)
	require.Error(t, j.Run(t.Context()))
	require.Contains(t, out.String(), err.Error())
	require.Equal(t, 1, strings.Count(err.Error(), "provider unavailable"), "said once")

	out = output{}
	j = job("table", 2, &out)
	j.Env = append(j.Env, "GCCL_PROVIDER=verbs,shm", "GCCL_DEBUG=warn")
	require.NoError(t, j.Run(t.Context()), "%s", &out)
	require.Contains(t, out.String(), "provider left out")
	require.Contains(t, out.String(), err.Error())
}

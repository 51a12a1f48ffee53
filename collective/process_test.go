package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/internal/launch"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// The test binary starts itself as the ranks of a job; workEnv says what they do.
const workEnv = "GCCL_TEST_WORK"

var works = map[string]func(ctx context.Context, c *collective.Comm) error{
	"table":        workTable,
	"forever":      workForever,
	"slow":         workSlow,
	"registered":   workRegistered,
	"reproducible": workReproducible,
	"cases":        workCases,
	"reduce":       workReduce,
	"ring":         workRing,
	"shrink":       workShrink,
	"mismatch":     workMismatch,
	"few":          workFew,
	"until":        workUntil,
	"deadlocks":    workDeadlocks,
	"bounds":       workBounds,
	"campaign":     workCampaign,
	"weather":      workWeather,
	"late":         workLate,
	"overhead":     workOverhead,
	"unlinked":     workUnlinked,
	"grows":        workGrows,
	"attached":     workAttached,
}

// alone are works of processes that make their communicators themselves, or none.
var alone = map[string]func(ctx context.Context) error{
	"init":      workInit,
	"strangers": workStrangers,
	"storm":     workStorm,
	"confined":  workConfined,
	"joins":     workJoins,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(workEnv); name != "" {
		run := func() error { return work(works[name]) }
		if f := alone[name]; f != nil {
			run = func() error { return f(context.Background()) }
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func work(f func(context.Context, *collective.Comm) error) error {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	c, err := collective.New(context.Background(), cfg)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := f(context.Background(), c); err != nil {
		return err
	}
	return c.Close()
}

// workTable makes every collective at several sizes and checks some values.
func workTable(ctx context.Context, c *collective.Comm) error {
	n, me := c.Size(), c.Rank()
	for _, count := range []int{0, 1, 9, 1000, 300_000} {
		x, y := make([]float32, count), make([]float32, count)
		for i := range x {
			x[i] = float32(me + i%7)
		}
		if err := c.AllReduce(ctx, tensor.Of(y), tensor.Of(x), tensor.Sum); err != nil {
			return err
		}
		for i := range y {
			if want := float32(n*(i%7) + n*(n-1)/2); y[i] != want {
				return fmt.Errorf("rank %d: allreduce of %d: [%d] = %v, want %v", me, count, i, y[i], want)
			}
		}
		all := make([]float32, count*n)
		if err := c.AllGather(ctx, tensor.Of(all), tensor.Of(x)); err != nil {
			return err
		}
		if err := c.ReduceScatter(ctx, tensor.Of(y), tensor.Of(all), tensor.Max); err != nil {
			return err
		}
		for i := range y {
			if all[me*count+i] != y[i] || y[i] != float32(me+i%7) {
				return fmt.Errorf("rank %d: reducescatter of the gathered %d: [%d] = %v", me, count, i, y[i])
			}
		}
		if err := c.Broadcast(ctx, tensor.Of(y), tensor.Of(x), n-1); err != nil {
			return err
		}
		if count > 8 && y[8] != float32(n-1+1) {
			return fmt.Errorf("rank %d: broadcast of %d: [8] = %v", me, count, y[8])
		}
		if err := c.SendRecv(ctx, tensor.Of(x), (me+1)%n, tensor.Of(y), (me+n-1)%n); err != nil {
			return err
		}
	}
	t, err := c.Alloc(ctx, tensor.Float32, 100_000)
	if err != nil {
		return err
	}
	return c.AllReduce(ctx, t, t, tensor.Sum)
}

// workForever reduces until something breaks.
func workForever(ctx context.Context, c *collective.Comm) error {
	for i := 0; ; i++ {
		x := make([]float32, []int{1, 500, 40_000, 1_000_000}[i%4])
		y := x
		if i%8 < 4 {
			y = make([]float32, len(x))
		}
		if err := c.AllReduce(ctx, tensor.Of(y), tensor.Of(x), tensor.Sum); err != nil {
			return err
		}
	}
}

// output collects what ranks print.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func job(name string, n int, out *output) *launch.Job {
	return &launch.Job{Args: []string{os.Args[0]}, Size: n, Env: []string{workEnv + "=" + name, "GCCL_TIMEOUT=60s"},
		Stdout: out, Stderr: out, Prefix: true}
}

func TestProcesses(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		var out output
		require.NoError(t, job("table", n, &out).Run(t.Context()), "%d ranks:\n%s", n, &out)
	}
}

// The same where every transfer is read in its sender's memory.
func TestProcessesAttached(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		var out output
		j := job("attached", n, &out)
		j.Env = append(j.Env, append(attachedEnv, "GCCL_DEBUG=info")...)
		require.NoError(t, j.Run(t.Context()), "%d ranks:\n%s", n, &out)
		require.Equal(t, n, strings.Count(out.String(), fmt.Sprintf(`"peers that read this rank's memory": %d`, n-1)), &out)
	}
	var out output
	j := job("attached", 3, &out)
	j.Env = append(j.Env, append(attachedEnv, "GCCL_LAZY=1")...)
	require.NoError(t, j.Run(t.Context()), "lazy:\n%s", &out)
}

var attachedEnv = []string{"GCCL_CMA=1", "GCCL_LEND_MIN=1", "GCCL_PROVIDER=shm"}

// workAttached makes the calls of the table of collectives.
func workAttached(ctx context.Context, c *collective.Comm) error {
	if _, err := collective.RunTable(c, 5, 97); err != nil {
		return err
	}
	if err := workTable(ctx, c); err != nil {
		return err
	}
	if collective.Fetched(c) == 0 {
		return errors.New("nothing was read in another process")
	}
	return nil
}

// Any rank is killed at any moment: the others return an error that names it, within two seconds,
// and nothing is left.
func TestKill(t *testing.T) {
	before := shmFiles(t)
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 8
	if *thorough {
		rounds = 200
	}
	for round := range rounds {
		n := 2 + round%3
		victim := rng.IntN(n)
		var out output
		j := job("forever", n, &out)
		if round%2 == 1 {
			j.Env = append(j.Env, attachedEnv...)
		}
		j.Survive = true
		killed := make(chan time.Time, 1)
		j.Started = func(ps []*os.Process) {
			go func() {
				for strings.Count(out.String(), "ready") < n {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond)
				killed <- time.Now()
				_ = ps[victim].Kill()
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		err := j.Run(ctx)
		cancel()
		took := time.Since(<-killed)
		require.Error(t, err)
		require.Less(t, took, 2*time.Second*slack, "round %d:\n%s", round, &out)
		text := out.String()
		for r := range n {
			if r == victim {
				continue
			}
			require.Contains(t, text, fmt.Sprintf("[%d] allreduce", r), "round %d: rank %d says nothing:\n%s", round, r, text)
		}
		for _, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "allreduce") {
				require.Contains(t, line, "peer lost", "round %d", round)
				require.Contains(t, line, fmt.Sprintf("rank %d (pid", victim), "round %d", round)
			}
		}
	}
	require.Equal(t, before, shmFiles(t))
}

func shmFiles(t *testing.T) []string {
	var names []string
	es, err := os.ReadDir("/dev/shm")
	require.NoError(t, err)
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

// The same over sockets.
func TestProcessesOverTCP(t *testing.T) {
	for _, n := range []int{2, 4} {
		var out output
		j := job("table", n, &out)
		j.Env = append(j.Env, "GCCL_PROVIDER=tcp")
		require.NoError(t, j.Run(t.Context()), "%d ranks:\n%s", n, &out)
	}
}

// Links that are made when they are wanted carry the same.
func TestProcessesLazy(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		var out output
		j := job("table", 5, &out)
		j.Env = append(j.Env, "GCCL_LAZY=1", "GCCL_PROVIDER="+provider)
		require.NoError(t, j.Run(t.Context()), "%s:\n%s", provider, &out)
	}
}

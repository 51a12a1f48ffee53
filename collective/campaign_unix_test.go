//go:build unix

package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// workCampaign reduces until something breaks, says when it learned of it and what, shrinks, checks a
// reduction among the survivors, and goes on with them, until it is alone.
func workCampaign(ctx context.Context, c *collective.Comm) error { return endure(ctx, c, workForever) }

// endure does a work that ends when something breaks, again and again.
func endure(ctx context.Context, c *collective.Comm, work func(context.Context, *collective.Comm) error) error {
	fmt.Println("pid", os.Getpid())
	go tellGaps()
	for c.Size() > 1 {
		err := work(ctx, c)
		fmt.Printf("broke %d at %d: %v\n", c.Generation(), time.Now().UnixNano(), err)
		var e *collective.StepError
		if !errors.As(err, &e) {
			return err
		}
		shrinking, cancel := context.WithTimeout(ctx, 40*time.Second)
		child, err := c.Shrink(shrinking)
		cancel()
		note("shrunk")
		if err != nil {
			return errors.Join(fmt.Errorf("shrink: %w", err), c.Close())
		}
		x := make([]float32, 1000)
		for i := range x {
			x[i] = float32(child.Rank() + i)
		}
		if err := child.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil {
			return fmt.Errorf("after shrink: %w", err)
		}
		for i, n := 0, child.Size(); i < len(x); i++ {
			if want := float32(n*i + n*(n-1)/2); x[i] != want {
				return fmt.Errorf("after shrink: [%d] is %v among %d ranks, want %v", i, x[i], n, want)
			}
		}
		fmt.Printf("going %d at %d\n", child.Generation(), time.Now().UnixNano())
		if err := c.Close(); err != nil {
			return err
		}
		c = child
	}
	return c.Close()
}

// workWeather is workCampaign with results that are checked, and with a line for every ten of them.
func workWeather(ctx context.Context, c *collective.Comm) error {
	return endure(ctx, c, func(ctx context.Context, c *collective.Comm) error {
		for done := 0; ; {
			x := make([]float32, []int{1, 500, 40_000, 200_000}[done%4])
			for i := range x {
				x[i] = float32((7*i + done + c.Rank()) % 1000)
			}
			if err := c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil {
				return err
			}
			for i := range x {
				var want float32
				for r := range c.Size() {
					want += float32((7*i + done + r) % 1000)
				}
				if x[i] != want {
					return fmt.Errorf("wrong: [%d] of %d is %v, want %v", i, len(x), x[i], want)
				}
			}
			if done++; done%10 == 0 {
				fmt.Println("did", done)
			}
		}
	})
}

// casualty is one kill or stop, and what the survivors saw of it. Times are from the signal.
type casualty struct {
	Provider string
	Rank, Of int
	Learned  []time.Duration // to each survivor's error
	Resumed  []time.Duration // to each survivor's correct reduction on the new communicator
	Held     time.Duration   // of that, this process itself did not run: something held the whole machine

	at time.Time
}

var (
	brokeLine = regexp.MustCompile(`(?m)^\[(\d)\] broke (\d) at (\d+): (.*)$`)
	goingLine = regexp.MustCompile(`(?m)^\[(\d)\] going (\d) at (\d+)$`)
)

// survive runs one job of n ranks that loses all but the least, each at a random moment.
func survive(t *testing.T, rng *rand.Rand, n, least int, provider string, sig syscall.Signal, env ...string) []casualty {
	t.Helper()
	var out output
	j := job("campaign", n, &out)
	j.Survive = true
	j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_BUFFSIZE=256K", "GCCL_DEBUG=silent")
	j.Env = append(j.Env, env...)
	var lost []casualty
	holds := watchHolds()
	done := make(chan struct{})
	j.Started = func(ps []*os.Process) {
		go func() {
			defer close(done)
			alive := make([]int, n)
			for i := range alive {
				alive[i] = i
			}
			for gen := 0; len(alive) > least; gen++ {
				word := "ready"
				if gen > 0 {
					word = fmt.Sprintf("going %d ", gen)
				}
				for deadline := time.Now().Add(60 * time.Second); strings.Count(out.String(), word) < len(alive); time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						for _, p := range ps {
							_ = p.Kill()
						}
						return // what is missing is found below
					}
				}
				time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond) // the random moment
				i := rng.IntN(len(alive))
				lost = append(lost, casualty{Provider: provider, Rank: alive[i], Of: len(alive), at: time.Now()})
				_ = ps[alive[i]].Signal(sig)
				alive = slices.Delete(alive, i, i+1)
			}
			for deadline := time.Now().Add(60 * time.Second); strings.Count(out.String(), fmt.Sprintf("going %d ", n-least)) < least && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			for _, p := range ps { // the stopped ones, and, if more than one is left, these
				if least > 1 {
					_ = p.Kill()
				}
			}
		}()
	}
	_ = j.Run(t.Context())
	<-done
	held := holds()
	text := out.String()
	require.Len(t, lost, n-least, text)
	seen := map[[2]int]time.Duration{}
	for _, m := range brokeLine.FindAllStringSubmatch(text, -1) {
		r, _ := strconv.Atoi(m[1])
		gen, _ := strconv.Atoi(m[2])
		ns, _ := strconv.ParseInt(m[3], 10, 64)
		if gen >= len(lost) {
			continue // of the end
		}
		if slices.ContainsFunc(lost[:gen+1], func(c casualty) bool { return c.Rank == r }) {
			continue // a stopped rank that was woken by its end
		}
		c := lost[gen]
		require.Contains(t, m[4], "peer lost", text)
		require.Contains(t, m[4], fmt.Sprintf("(pid %d on", pidOf(text, c.Rank)), "the survivor names another rank:\n%s", text)
		seen[[2]int{gen, r}] = time.Unix(0, ns).Sub(c.at)
	}
	for gen := range lost {
		c := &lost[gen]
		for r := range n {
			if slices.ContainsFunc(lost[:gen+1], func(c casualty) bool { return c.Rank == r }) {
				continue
			}
			d, ok := seen[[2]int{gen, r}]
			require.True(t, ok, "rank %d said nothing of the end of rank %d:\n%s", r, c.Rank, text)
			c.Learned = append(c.Learned, d)
		}
	}
	resumed := 0
	for _, m := range goingLine.FindAllStringSubmatch(text, -1) {
		gen, _ := strconv.Atoi(m[2])
		ns, _ := strconv.ParseInt(m[3], 10, 64)
		c := &lost[gen-1]
		c.Resumed = append(c.Resumed, time.Unix(0, ns).Sub(c.at))
		resumed++
	}
	require.GreaterOrEqual(t, resumed, (n-least)*(n+least-1)/2, text)
	for gen := range lost {
		c := &lost[gen]
		c.Held = held(c.at, c.at.Add(slices.Max(c.Resumed)))
		if sig == syscall.SIGKILL && (slices.Max(c.Learned) > slowNotice || slices.Max(c.Resumed) > slowRecovery) {
			t.Logf("slow: rank %d of %d killed, held %v, errors after %v, reductions after %v:\n%s",
				c.Rank, c.Of, c.Held, c.Learned, c.Resumed, between(text, c.at, slices.Max(c.Resumed)))
		}
	}
	return lost
}

// pidOf finds the process of a rank of the first communicator in what it printed.
func pidOf(text string, rank int) int {
	m := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] pid (\d+)$`, rank)).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	pid, _ := strconv.Atoi(m[1])
	return pid
}

// Ranks are killed one after another at random moments: each time the survivors learn within the bound who
// it was, shrink, and reduce correctly; nothing is left. -campaign sets how many; with -campaign-log they are
// added to those of earlier runs, and the table is of all.
func TestCampaignKill(t *testing.T) {
	kills := 6
	if *thorough {
		kills = 60
	}
	if *campaign > 0 {
		kills = *campaign
	}
	before := shmFiles(t)
	for _, provider := range []string{"shm", "tcp"} {
		t.Run(provider, func(t *testing.T) {
			earlier := readCampaign(t, provider)
			rng := rand.New(rand.NewPCG(3, 5+uint64(len(earlier))))
			var all []casualty
			began := time.Now()
			for len(all) < kills && time.Since(began) < *campaignFor {
				cs := survive(t, rng, 4, 1, provider, syscall.SIGKILL)
				appendCampaign(t, cs)
				all = append(all, cs...)
			}
			t.Logf("%s: %d kills in %v, %d before", provider, len(all), time.Since(began).Round(time.Second), len(earlier))
			tell(t, provider, append(earlier, all...))
			for _, c := range all {
				require.Less(t, slices.Max(c.Learned)-c.Held, time.Second*slack)
			}
		})
	}
	require.Equal(t, before, shmFiles(t))
}

// The same with ranks that are stopped: within the heartbeat.
func TestCampaignStop(t *testing.T) {
	stops := 3
	if *thorough {
		stops = 15
	}
	if *campaign > 0 {
		stops = max(3, *campaign/20)
	}
	for _, provider := range []string{"shm", "tcp"} {
		rng := rand.New(rand.NewPCG(3, 5))
		var all []casualty
		for len(all) < stops {
			all = append(all, survive(t, rng, 4, 2, provider, syscall.SIGSTOP, "GCCL_HEARTBEAT=1s")...)
		}
		tell(t, provider+", stopped, heartbeat 1 s", all)
		for _, c := range all {
			require.Less(t, slices.Max(c.Learned)-c.Held, 2*time.Second*slack)
		}
	}
}

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
func workCampaign(ctx context.Context, c *collective.Comm) error {
	fmt.Println("pid", os.Getpid())
	for c.Size() > 1 {
		err := workForever(ctx, c)
		fmt.Printf("broke %d at %d: %v\n", c.Generation(), time.Now().UnixNano(), err)
		var e *collective.StepError
		if !errors.As(err, &e) {
			return err
		}
		shrinking, cancel := context.WithTimeout(ctx, 40*time.Second)
		child, err := c.Shrink(shrinking)
		cancel()
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

// casualty is one kill or stop, and what the survivors saw of it.
type casualty struct {
	rank   int
	at     time.Time
	before int // ranks that were left before it
}

// tally collects what campaigns measured.
type tally struct {
	learned []time.Duration // from the signal to each survivor's error
	slowest []time.Duration // to the last survivor's, of each casualty
	resumed []time.Duration // to each survivor's correct reduction on the new communicator
}

var (
	brokeLine = regexp.MustCompile(`(?m)^\[(\d)\] broke (\d) at (\d+): (.*)$`)
	goingLine = regexp.MustCompile(`(?m)^\[(\d)\] going (\d) at (\d+)$`)
)

// survive runs one job of n ranks that loses all but the least, each at a random moment, and adds to the tally.
func (y *tally) survive(t *testing.T, rng *rand.Rand, n, least int, provider string, sig syscall.Signal, env ...string) int {
	t.Helper()
	var out output
	j := job("campaign", n, &out)
	j.Survive = true
	j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_BUFFSIZE=256K", "GCCL_DEBUG=silent")
	j.Env = append(j.Env, env...)
	var lost []casualty
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
				lost = append(lost, casualty{alive[i], time.Now(), len(alive)})
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
		if slices.ContainsFunc(lost[:gen+1], func(c casualty) bool { return c.rank == r }) {
			continue // a stopped rank that was woken by its end
		}
		c := lost[gen]
		require.Contains(t, m[4], "peer lost", text)
		require.Contains(t, m[4], fmt.Sprintf("(pid %d on", pidOf(text, c.rank)), "the survivor names another rank:\n%s", text)
		seen[[2]int{gen, r}] = time.Unix(0, ns).Sub(c.at)
	}
	for gen, c := range lost {
		var worst time.Duration
		for r := range n {
			if slices.ContainsFunc(lost[:gen+1], func(c casualty) bool { return c.rank == r }) {
				continue
			}
			d, ok := seen[[2]int{gen, r}]
			require.True(t, ok, "rank %d said nothing of the end of rank %d:\n%s", r, c.rank, text)
			y.learned = append(y.learned, d)
			worst = max(worst, d)
		}
		y.slowest = append(y.slowest, worst)
	}
	resumed := 0
	for _, m := range goingLine.FindAllStringSubmatch(text, -1) {
		gen, _ := strconv.Atoi(m[2])
		ns, _ := strconv.ParseInt(m[3], 10, 64)
		y.resumed = append(y.resumed, time.Unix(0, ns).Sub(lost[gen-1].at))
		resumed++
	}
	require.GreaterOrEqual(t, resumed, (n-least)*(n+least-1)/2, text)
	return len(lost)
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

// quantiles is a row of the table in docs/reliability.md.
func quantiles(ds []time.Duration) string {
	if len(ds) == 0 {
		return "0"
	}
	slices.Sort(ds)
	at := func(q float64) time.Duration {
		return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d | %v | %v | %v | %v", len(ds), at(0.5), at(0.9), at(0.99), ds[len(ds)-1].Round(10*time.Microsecond))
}

// Ranks are killed one after another at random moments: each time the survivors learn within the bound who
// it was, shrink, and reduce correctly; nothing is left. -campaign sets how many.
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
			rng := rand.New(rand.NewPCG(3, 5))
			var y tally
			began := time.Now()
			t.Cleanup(func() {
				t.Logf("%s: %d kills in %v", provider, len(y.slowest), time.Since(began).Round(time.Second))
				t.Logf("| %s | each survivor's error | %s |", provider, quantiles(y.learned))
				t.Logf("| %s | the last survivor's error | %s |", provider, quantiles(y.slowest))
				t.Logf("| %s | correct reduction after Shrink | %s |", provider, quantiles(y.resumed))
			})
			for done := 0; done < kills && time.Since(began) < *campaignFor; {
				done += y.survive(t, rng, 4, 1, provider, syscall.SIGKILL)
			}
			require.Less(t, slices.Max(y.slowest), time.Second*slack)
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
		var y tally
		for done := 0; done < stops; {
			done += y.survive(t, rng, 4, 2, provider, syscall.SIGSTOP, "GCCL_HEARTBEAT=1s")
		}
		t.Logf("| %s | stopped, heartbeat 1 s: each survivor's error | %s |", provider, quantiles(y.learned))
		t.Logf("| %s | correct reduction after Shrink | %s |", provider, quantiles(y.resumed))
		require.Less(t, y.slowest[len(y.slowest)-1], 2*time.Second*slack)
	}
}

package collective

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"github.com/gccl/gccl/tensor"
)

const (
	overheadBlock = 250 * time.Microsecond // of calls of one sort
	overheadFor   = 2000 * time.Millisecond
	overheadMost  = 8000 // rounds
)

// Overhead measures what fingerprints and flight recorder add to a call: the same communicator makes short
// blocks of AllReduce with and without them, eight in the order 01101001 (Thue and Morse), in which drifts
// cancel. Each round of eight gives one ratio; their median counts, with the interval that holds it with 95 %
// probability by order statistics, whatever their distribution. As a control the same is done with blocks that do
// not differ. The pulse is measured apart, as the share of a core that it takes in a communicator at rest.
func Overhead(ctx context.Context, c *Comm, say func(format string, a ...any)) error {
	agreed := func(v int64) (int64, error) {
		x := []int64{v}
		err := c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Max)
		return x[0], err
	}
	for _, n := range []int{2, 256, 4 << 10, 64 << 10, 1 << 20, 8 << 20} {
		x := make([]float32, n)
		block := func(bare bool, calls int64) (time.Duration, error) {
			c.cfg.bare = bare
			defer func() { c.cfg.bare = false }()
			began := time.Now()
			for range calls {
				if err := c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Max); err != nil {
					return 0, err
				}
			}
			return time.Since(began), nil
		}
		calls, took := int64(1), time.Duration(0)
		for warm := 0; warm < 20; warm++ { // the last blocks' time counts
			if took < overheadBlock {
				calls, warm = 2*calls, 0
			}
			d, err := block(false, calls)
			if err != nil {
				return err
			}
			ns, err := agreed(int64(d))
			if err != nil {
				return err
			}
			took = time.Duration(ns)
		}
		rounds := min(overheadMost, max(30, int(overheadFor/(8*took))))
		var call time.Duration
		measure := func(second bool) ([]float64, error) {
			ratios := make([]float64, 0, rounds)
			for range rounds {
				var sum [2]time.Duration
				for j := range 8 {
					which := bits.OnesCount(uint(j)) % 2 // 0 1 1 0 1 0 0 1
					d, err := block(which == 1 && second, calls)
					if err != nil {
						return nil, err
					}
					sum[which] += d
				}
				ratios = append(ratios, float64(sum[0])/float64(sum[1]))
				call += sum[0] / time.Duration(4*calls)
			}
			return ratios, nil
		}
		same, err := measure(false)
		if err != nil {
			return err
		}
		call = 0
		differ, err := measure(true)
		if err != nil {
			return err
		}
		if c.rank == 0 {
			m, lo, hi := median95(differ)
			m0, lo0, hi0 := median95(same)
			say("| %d | %v | %+.2f %% | %+.2f … %+.2f %% | %+.2f … %+.2f … %+.2f %% | %d |", 4*n, (call / time.Duration(rounds)).Round(10*time.Nanosecond),
				m, lo, hi, lo0, m0, hi0, rounds)
		}
	}
	with, err := restingShare()
	if err != nil {
		return err
	}
	c.pulse.stop()
	without, err := restingShare()
	if err == nil && c.rank == 0 {
		say("| pulse at rest | %.4f %% of a core, without it %.4f %% |", with, without)
	}
	return err
}

// median95 returns the median of ratios and its 95 % interval, as percent above 1.
func median95(ratios []float64) (mid, low, high float64) {
	slices.Sort(ratios)
	n := len(ratios)
	half := 0.98 * math.Sqrt(float64(n))
	at := func(i float64) float64 { return 100 * (ratios[max(0, min(n-1, int(i)))] - 1) }
	return at(float64(n) / 2), at(float64(n)/2 - half), at(float64(n)/2 + half)
}

// restingShare is what this process takes of a core while nobody calls, in percent.
func restingShare() (float64, error) {
	const rest = 2 * time.Second
	var a, b syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &a); err != nil {
		return 0, err
	}
	time.Sleep(rest)
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &b); err != nil {
		return 0, err
	}
	cpu := b.Utime.Nano() - a.Utime.Nano() + b.Stime.Nano() - a.Stime.Nano()
	return 100 * float64(cpu) / float64(rest), nil
}

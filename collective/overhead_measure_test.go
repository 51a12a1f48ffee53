package collective

import (
	"context"
	"errors"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/tensor"
)

const (
	overheadBlock = 250 * time.Microsecond // of calls of one sort
	overheadFor   = 1500 * time.Millisecond
	overheadMost  = 8000 // rounds
	countedEvery  = 16   // rounds
)

// OverheadOf is what fingerprints and flight recorder add to a call of a size, and what the pulse takes.
type OverheadOf struct {
	Bytes    int
	Call     []int64   // nanoseconds of a call, by round
	Ratios   []float64 // by round: with to without
	Control  []float64 // by round: with to with
	Counted  float64   // nanoseconds that the operations for a call and its messages take by themselves
	Messages int       // that a rank sends, and receives, in a call

	Resting, RestingBare float64 // Bytes is 0: share of a core in percent with the pulse and without, in no call
	Busy, BusyBare       float64 // and beside a goroutine that computes
}

// Overhead measures it in two ways.
//
// Paired: the same communicator makes short blocks of AllReduce with and without them, eight in the order
// 01101001 (Thue and Morse), in which drifts cancel. Each round of eight gives one ratio. As a control the
// same is done with blocks that do not differ.
//
// Counted: the operations alone, with everything in the cache, and nothing beside them that could hide them. The
// same processes do it between their blocks, at the same clock speed.
//
// The pulse is measured apart, as the share of a core that it takes.
func Overhead(ctx context.Context, c *Comm, tell func(OverheadOf)) error {
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
		rounds := min(overheadMost, max(16, int(overheadFor/(8*took))))
		o := OverheadOf{Bytes: 4 * n, Messages: max(1, (4*n+c.geo.SlotBytes-1)/c.geo.SlotBytes)}
		var counted []float64
		for i := range 2 * rounds { // ratio and control take turns
			second := i%2 == 0
			var sum [2]time.Duration
			for j := range 8 {
				which := bits.OnesCount(uint(j)) % 2 // 0 1 1 0 1 0 0 1
				d, err := block(which == 1 && second, calls)
				if err != nil {
					return err
				}
				sum[which] += d
			}
			ratio := float64(sum[0]) / float64(sum[1])
			if second {
				o.Ratios = append(o.Ratios, ratio)
				o.Call = append(o.Call, int64(sum[0])/(4*calls))
				continue
			}
			o.Control = append(o.Control, ratio)
			if i%countedEvery == 1 {
				counted = append(counted, c.counted(o.Messages))
				if _, err := block(false, calls); err != nil { // which has the ranks meet again
					return err
				}
			}
		}
		slices.Sort(counted)
		o.Counted = counted[len(counted)/2]
		tell(o)
	}
	if _, err := agreed(0); err != nil {
		return err
	}
	var o OverheadOf
	for i := range 4 {
		rest, busy := &o.Resting, &o.Busy
		if i == 1 || i == 2 {
			rest, busy = &o.RestingBare, &o.BusyBare
			c.pulse.stop()
		}
		r, err := restingShare()
		if err != nil {
			return err
		}
		b, err := busyShare()
		if err != nil {
			return err
		}
		*rest, *busy = *rest+r/2, *busy+b/2
		if i == 1 || i == 2 {
			c.pulse.start(c.beat)
		}
	}
	tell(o)
	return nil
}

// line is a message's header as package link has it.
type line struct {
	pub    atomic.Uint64
	call   link.Call
	inline [4]uint64
}

// countedLoops makes a block long for the clock.
const countedLoops = 1000

// counted returns what fingerprint and record of a call, and the descriptions of so many messages sent and
// received, take in nanoseconds: blocks of the operations that a call makes anyway, with and without them.
func (c *Comm) counted(messages int) float64 {
	x := make([]float32, 2)
	call := &Call{Kind: AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: tensor.Max}
	p, err := c.ready(call)
	if err != nil {
		panic(err) // a call that was made before
	}
	var lines [256]line
	seq := c.seq
	defer func() { c.seq, c.cfg.bare = seq, false }()
	var calls, descriptions [2]time.Duration
	for j := range 8 {
		with := bits.OnesCount(uint(j)) % 2
		c.cfg.bare = with == 0
		began := time.Now()
		for range countedLoops {
			if c.fill(&c.job, p, call); with == 1 && !c.engine.Waited() {
				c.flight.ring.End(true)
			}
		}
		half := time.Now()
		a := &c.job.Args.Call
		for i := range uint64(countedLoops) {
			l := &lines[i%256]
			if with == 1 {
				l.call = *a
			}
			l.pub.Store(i)
			if l.pub.Load() != i || with == 1 && l.call.FP != a.FP {
				panic("a line that this goroutine wrote is another")
			}
		}
		calls[with] += half.Sub(began)
		descriptions[with] += time.Since(half)
	}
	ns := func(d [2]time.Duration) float64 { return float64(d[1]-d[0]) / (4 * countedLoops) }
	return ns(calls) + float64(messages)*max(0, ns(descriptions))
}

// restingShare is what this process takes of a core while nobody calls, in percent.
func restingShare() (float64, error) {
	const rest = time.Second
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

// busyShare is what the other threads of this process take of a core while a goroutine computes, in percent.
func busyShare() (float64, error) {
	const busy = time.Second
	const thread = 1 // RUSAGE_THREAD, which Linux has
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	others := func() (time.Duration, error) {
		var all, mine syscall.Rusage
		err := errors.Join(syscall.Getrusage(thread, &mine), syscall.Getrusage(syscall.RUSAGE_SELF, &all))
		return time.Duration(all.Utime.Nano() + all.Stime.Nano() - mine.Utime.Nano() - mine.Stime.Nano()), err
	}
	a, err := others()
	if err != nil {
		return 0, err
	}
	for began := time.Now(); time.Since(began) < busy; {
	}
	b, err := others()
	return 100 * float64(b-a) / float64(busy), err
}

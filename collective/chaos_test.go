package collective

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/faulty"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

var (
	chaosSeed  = flag.Int64("seed", -1, "run this case of chaos alone")
	chaosWhole = flag.Bool("chaos", false, "walk every fault through every write of every algorithm")
)

// chaosRanks is the size of the jobs.
const chaosRanks = 4

// chaosFaults are what is done to a write.
var chaosFaults = []faulty.Fault{faulty.Delay, faulty.Drop, faulty.Truncate, faulty.Corrupt, faulty.Stall, faulty.Break, faulty.Die}

// chaosCase is a fault at one write of one connection in one call of an algorithm.
type chaosCase struct {
	algorithm int // of the catalog
	fault     faulty.Fault
	rank      int // whose device has it
	endpoint  int // from 1, in the order of the peers
	sums      bool
	post      int
}

// seed is the case as a number, and chaosOf its inverse.
func (cs chaosCase) seed() int64 {
	s := int64(cs.algorithm)
	s = s*8 + int64(cs.fault)
	s = s*chaosRanks + int64(cs.rank)
	s = s*chaosRanks + int64(cs.endpoint)
	s *= 2
	if cs.sums {
		s++
	}
	return s<<12 + int64(cs.post)
}

func chaosOf(s int64) (cs chaosCase) {
	cs.post, s = int(s&4095), s>>12
	cs.sums, s = s&1 == 1, s>>1
	cs.endpoint, s = int(s%chaosRanks), s/chaosRanks
	cs.rank, s = int(s%chaosRanks), s/chaosRanks
	cs.fault, cs.algorithm = faulty.Fault(s%8), int(s/8)
	return cs
}

// peer is the rank at the other end.
func (cs chaosCase) peer() int {
	if cs.endpoint-1 < cs.rank {
		return cs.endpoint - 1
	}
	return cs.endpoint
}

func (cs chaosCase) String() string {
	return fmt.Sprintf("%s, %v at write %d from %d to %d, checksums %v (-seed %d)", catalog()[cs.algorithm].Name, cs.fault,
		cs.post, cs.rank, cs.peer(), cs.sums, cs.seed())
}

// chaosTimeout is the calls' deadline, and chaosSilence the heartbeat, of a clock that does not run by itself.
const (
	chaosTimeout = 20 * time.Second
	chaosSilence = 2 * time.Second
)

// run makes the case; fired says whether the call came to that write.
func (cs chaosCase) run(t *testing.T) (fired bool) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		if fired, err = cs.inBubble(); err != nil {
			t.Errorf("%v: %v", cs, err)
		}
	})
	return fired
}

// inBubble makes the case. Goroutines that are left over make the bubble's end fail.
func (cs chaosCase) inBubble() (fired bool, err error) {
	info := &catalog()[cs.algorithm]
	var control *faulty.Control // set by one rank, before NewLocal returns
	cfg := Config{Timeout: chaosTimeout, Heartbeat: chaosSilence, BufferBytes: 16 * 64, Slots: 16, Spin: -1, Checksum: cs.sums,
		noMap: true, still: true, pulse: cs.fault == faulty.Stall,
		wrap: func(rank int, d rdma.Device) rdma.Device {
			if rank != cs.rank {
				return d
			}
			d, control = faulty.Wrap(d, faulty.Plan{Seed: uint64(cs.seed()), HideLoadStore: true, Delay: 300 * time.Millisecond,
				At: []faulty.Event{{Endpoint: cs.endpoint, Post: uint64(cs.post), Fault: cs.fault}}})
			return d
		}}
	comms, err := NewLocal(context.Background(), chaosRanks, cfg)
	if err != nil {
		return false, err
	}
	tc := tableCase{info: info, dt: tensor.Float32, op: tensor.Sum, count: 37, root: cs.post % chaosRanks}
	if !info.Collective.Rooted() {
		tc.root = 0
	}
	errs := make([]error, chaosRanks)
	start := time.Now()
	each := func(f func(r int) error) {
		var wg sync.WaitGroup
		for r := range comms {
			wg.Go(func() { errs[r] = f(r) })
		}
		wg.Wait()
	}
	each(func(r int) error { return tc.run(comms[r]) })
	took := time.Since(start)
	fired = len(control.Injected()) > 0
	for r, e := range errs {
		if bad := cs.judge(r, e, fired); bad != nil {
			err = errors.Join(err, bad)
		}
	}
	if took > chaosTimeout+time.Second {
		err = errors.Join(err, fmt.Errorf("took %v", took))
	}
	broken := false
	for _, c := range comms {
		broken = broken || c.broken.Load() != nil
	}
	if broken && err == nil {
		err = cs.recover(comms)
	}
	for _, c := range comms {
		err = errors.Join(err, c.Close())
	}
	return fired, err
}

// judge says what is wrong with a rank's outcome, or nil.
func (cs chaosCase) judge(r int, err error, fired bool) error {
	if err == nil {
		return nil // the result is right: the call's own check
	}
	var e *StepError
	if !errors.As(err, &e) {
		return fmt.Errorf("wrong result: %w", err)
	}
	wrong := fmt.Errorf("rank %d: not the error to expect: %w", r, err)
	ends := e.Peer == cs.rank || e.Peer == cs.peer()
	switch {
	case !fired || cs.fault == faulty.Delay:
		return wrong
	case cs.fault == faulty.Die && r == cs.rank: // its own device is gone
		return nil
	case cs.fault == faulty.Die:
		if !errors.Is(err, ErrPeerLost) || e.Peer != cs.rank {
			return wrong
		}
	case cs.fault == faulty.Break:
		if !errors.Is(err, ErrPeerLost) || !ends {
			return wrong
		}
	case cs.fault == faulty.Stall: // who only had to send hears nothing wrong of the peer, but knows whom it waits for
		late := (e.Kind == context.DeadlineExceeded || e.Kind == ErrGaveUp) && strings.Contains(err.Error(), fmt.Sprintf("waited for rank %d", cs.peer()))
		if !(errors.Is(err, ErrPeerLost) && ends || late) {
			return wrong
		}
	case errors.Is(err, ErrCorrupt):
		if e.Peer != cs.rank {
			return wrong
		}
	case cs.fault == faulty.Drop: // the last message of a connection: nothing came, and nothing after it
		if e.Kind != context.DeadlineExceeded && e.Kind != ErrGaveUp {
			return wrong
		}
	case cs.sums || !errors.Is(err, ErrMismatch): // without sums a damaged header may look like another call's
		return wrong
	}
	return nil
}

// recover has the ranks that are left shrink and reduce.
func (cs chaosCase) recover(comms []*Comm) error {
	dead := -1
	if cs.fault == faulty.Die { // as its process would
		dead = cs.rank
		if err := comms[dead].Close(); err != nil && !errors.Is(err, rdma.ErrClosed) {
			return err
		}
	}
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for r, c := range comms {
		if r == dead {
			continue
		}
		wg.Go(func() {
			child, err := c.Shrink(context.Background())
			if err != nil {
				if !errors.Is(err, ErrExcluded) {
					errs[r] = fmt.Errorf("rank %d: shrink: %w", r, err)
				}
				return
			}
			x := []float32{1, 2, 3}
			err = child.AllReduce(context.Background(), tensor.Of(x), tensor.Of(x), tensor.Sum)
			if n := float32(child.Size()); err == nil && (x[0] != n || x[1] != 2*n || x[2] != 3*n || child.Size() < 2) {
				err = fmt.Errorf("%v among %d after shrink", x, child.Size())
			}
			errs[r] = errors.Join(err, child.Close())
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// chaosAlgorithms are the indices of the catalog's algorithms that serve the job's size.
func chaosAlgorithms() (list []int) {
	for i, info := range catalog() {
		if info.Supports(chaosRanks, schedule.Shape{}) == nil {
			list = append(list, i)
		}
	}
	return list
}

// A fault at any write of any algorithm: the result is right, or the error names the right rank, in
// time; nothing is left over; those that are left can go on. -chaos walks every fault through every write
// until a call ends without having come to it; without, a sample of seeds is run.
func TestChaos(t *testing.T) {
	if *chaosSeed >= 0 {
		cs := chaosOf(*chaosSeed)
		t.Logf("%v: fired %v", cs, cs.run(t))
		return
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(catalog()))))
	ran, fired := map[faulty.Fault]int{}, map[faulty.Fault]int{}
	for _, a := range chaosAlgorithms() {
		for _, f := range chaosFaults {
			for post, quiet := 0, 0; quiet < 2*chaosRanks && post < 4096; post++ {
				cs := chaosCase{algorithm: a, fault: f, rank: rng.IntN(chaosRanks), endpoint: 1 + rng.IntN(chaosRanks-1), post: post,
					sums: f == faulty.Drop || f == faulty.Truncate || f == faulty.Corrupt || rng.IntN(2) == 0}
				if !*chaosWhole {
					cs.post = rng.IntN(6)
				}
				ran[f]++
				if quiet++; cs.run(t) {
					fired[f]++
					quiet = 0
				}
				if t.Failed() {
					return
				}
				if !*chaosWhole && post >= 1 {
					break
				}
			}
		}
	}
	t.Logf("cases run: %v; in which the fault came: %v", ran, fired)
}

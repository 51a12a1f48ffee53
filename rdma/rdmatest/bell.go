package rdmatest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

var bellTests = []test{
	{"RingAfterArm", testRingAfterArm},
	{"SleepEnds", testSleepEnds},
	{"RingUnarmedDoesNothing", testRingUnarmed},
	{"NoRingIsLost", testNoBellRingLost},
	{"NoSignalIsLost", testNoSignalLost},
	{"ManyRing", testManyRing},
	{"AfterClose", testBellAfterClose},
}

func bellOf(t *testing.T, d rdma.Device) rdma.Bell {
	t.Helper()
	bd, ok := d.(rdma.BellDevice)
	if !ok {
		t.Skip("no bell")
	}
	return bd.Bell()
}

// sleep waits for a ring that must come and reports whether it was the time that ended it.
func sleep(b rdma.Bell) (late bool) {
	start := time.Now()
	b.Sleep(Limit)
	return time.Since(start) >= Limit
}

// A ring between Arm and Sleep ends the sleep that follows.
func testRingAfterArm(t *testing.T, f Factory) {
	bell := bellOf(t, devices(t, f, 1)[0])
	for range 100 {
		bell.Arm()
		bell.Ring()
		require.False(t, sleep(bell))
	}
	for range 100 {
		bell.Arm()
		bell.Ring()
		bell.Disarm()
	}
}

// Without a ring the time ends the sleep; no time is no sleep.
func testSleepEnds(t *testing.T, f Factory) {
	bell := bellOf(t, devices(t, f, 1)[0])
	for _, d := range []time.Duration{time.Millisecond, time.Microsecond, 1, 0, -1} {
		bell.Arm()
		bell.Sleep(d)
	}
	bell.Arm()
	bell.Disarm()
}

func testRingUnarmed(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	bell := bellOf(t, d)
	for range 1000 {
		bell.Ring()
	}
	assert.Equal(t, bell, d.(rdma.BellDevice).Bell(), "a device has one bell")
	bell.Arm()
	bell.Ring()
	assert.False(t, sleep(bell))
}

// waitWord waits until w reaches v, asleep whenever it has not.
func waitWord(bell rdma.Bell, w *atomic.Uint64, v uint64) error {
	for w.Load() < v {
		bell.Arm()
		if w.Load() >= v {
			bell.Disarm()
			return nil
		}
		if sleep(bell) {
			return fmt.Errorf("a ring was lost: waited for %d, the word is %d", v, w.Load())
		}
	}
	return nil
}

// rounds of a wake-up stress test.
func rounds() uint64 { return uint64(messages(5000)) }

// Two goroutines wake each other; each ring follows the store that it is for by nothing.
func testNoBellRingLost(t *testing.T, f Factory) {
	devs := devices(t, f, 2)
	bells := []rdma.Bell{bellOf(t, devs[0]), bellOf(t, devs[1])}
	var words [2]atomic.Uint64
	var g errgroup.Group
	for i := range 2 {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(2, uint64(i)))
			for v := uint64(1); v <= rounds(); v++ {
				if i == 0 {
					words[1].Store(v)
					bells[1].Ring()
				}
				for range rng.IntN(20) {
					runtime.Gosched()
				}
				if err := waitWord(bells[i], &words[i], v); err != nil {
					return err
				}
				if i == 1 {
					words[0].Store(v)
					bells[0].Ring()
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

// The same through mapped memory and Signal.
func testNoSignalLost(t *testing.T, f Factory) {
	a, b, _, _ := loadStorePair(t, f)
	bellOf(t, a.dev)
	var g errgroup.Group
	g.Go(func() error { return a.playBells(t.Context(), b.mem.Remote(), rounds(), true) })
	g.Go(func() error { return b.playBells(t.Context(), a.mem.Remote(), rounds(), false) })
	require.NoError(t, g.Wait())
}

// Any goroutine may ring: the waiter sees each of many ringers' work.
func testManyRing(t *testing.T, f Factory) {
	bell := bellOf(t, devices(t, f, 1)[0])
	const ringers = 4
	each := rounds() / 4
	var sum atomic.Uint64
	var wg sync.WaitGroup
	for range ringers {
		wg.Go(func() {
			for range each {
				sum.Add(1)
				bell.Ring()
				runtime.Gosched()
			}
		})
	}
	for v := uint64(1); v <= ringers*each; v = sum.Load() + 1 {
		require.NoError(t, waitWord(bell, &sum, v))
	}
	wg.Wait()
}

// A closed device's bell ends no process and blocks nobody.
func testBellAfterClose(t *testing.T, f Factory) {
	d := devices(t, f, 1)[0]
	bell := bellOf(t, d)
	require.NoError(t, d.Close())
	bell.Ring()
	bell.Arm()
	bell.Sleep(time.Microsecond)
	bell.Disarm()
}

//go:build linux

package futex

import (
	"math"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const forever = time.Duration(math.MaxInt64)

func TestWaitReturnsAtOnceIfTheWordDiffers(t *testing.T) {
	var word atomic.Uint32
	require.True(t, Wait(&word, 1, forever))
}

func TestWaitEndsInTime(t *testing.T) {
	var word atomic.Uint32
	start := time.Now()
	for !timedOut(&word, 20*time.Millisecond) {
	}
	require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	require.False(t, Wait(&word, 0, 0))
	require.False(t, Wait(&word, 0, -1))
}

func timedOut(word *atomic.Uint32, d time.Duration) bool { return !Wait(word, 0, d) }

// A signal must neither end a wait nor make it longer.
func TestSignalsDoNotEndAWait(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	var word atomic.Uint32
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			}
		}
	})
	start := time.Now()
	woken := Wait(&word, 0, 100*time.Millisecond)
	close(done)
	wg.Wait()
	require.False(t, woken, "nobody woke")
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
}

func TestWakeCountsWaiters(t *testing.T) {
	var word atomic.Uint32
	require.Zero(t, Wake(&word, math.MaxInt32))
	const waiters = 4
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			for word.Load() == 0 {
				Wait(&word, 0, forever)
			}
		})
	}
	woken := 0
	for woken < waiters { // the word is still 0: who is woken sleeps again, so this ends when all slept
		woken += Wake(&word, 1)
	}
	word.Store(1)
	Wake(&word, math.MaxInt32)
	wg.Wait()
}

// Two goroutines hand a turn to each other only through the futex; a lost wake-up hangs the test.
func TestNoWakeUpIsLost(t *testing.T) {
	var word atomic.Uint32
	const turns = 20000
	var wg sync.WaitGroup
	for me := range uint32(2) {
		wg.Go(func() {
			for {
				now := word.Load()
				if now >= turns {
					return
				}
				if now%2 != me {
					Wait(&word, now, forever)
					continue
				}
				word.Add(1)
				Wake(&word, 1)
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, word.Load(), uint32(turns))
}

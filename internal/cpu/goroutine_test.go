package cpu_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/stretchr/testify/require"
)

// TestGoroutine has goroutines meet while all are alive: each keeps its number, on whatever thread it
// goes on and however its stack grows, and no two have the same.
func TestGoroutine(t *testing.T) {
	if cpu.Goroutine() == 0 {
		t.Skip("no numbers here")
	}
	const n = 50
	var meet, done sync.WaitGroup
	var mu sync.Mutex
	seen := map[uintptr]int{}
	meet.Add(n)
	for range n {
		done.Go(func() {
			me := cpu.Goroutine()
			mu.Lock()
			seen[me]++
			mu.Unlock()
			meet.Done()
			meet.Wait()
			for range 100 {
				runtime.Gosched()
				if deep(100) != me {
					t.Error("the number changed")
				}
			}
		})
	}
	done.Wait()
	require.Len(t, seen, n)
}

//go:noinline
func deep(n int) uintptr {
	var room [512]byte
	if n > 0 {
		return deep(n-1) + uintptr(room[n%len(room)])
	}
	return cpu.Goroutine()
}

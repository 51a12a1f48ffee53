//go:build linux && (amd64 || arm64) && !noverbs

package ccall_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma/verbs/internal/ccall"
)

func function(t testing.TB, name string) uintptr {
	lib, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Skip(err)
	}
	fn, err := purego.Dlsym(lib, name)
	require.NoError(t, err)
	return fn
}

// All three arguments and the result arrive, from many goroutines whose stacks are moved meanwhile.
func TestCall(t *testing.T) {
	memcmp := function(t, "memcmp")
	mem := function(t, "calloc")
	a, _, _ := purego.SyscallN(mem, 1, 64)
	b, _, _ := purego.SyscallN(mem, 1, 64)
	set := &ccall.List{Fn: function(t, "memset"), Args: [3]uintptr{b + 32, 7, 1}}
	set.Call()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			same := &ccall.List{Fn: memcmp, Args: [3]uintptr{a, b, 32}}
			less := &ccall.List{Fn: memcmp, Args: [3]uintptr{a, b, 33}}
			more := &ccall.List{Fn: memcmp, Args: [3]uintptr{b, a, 64}}
			for i := range 1000 {
				if i%100 == 0 {
					deepen(200)
					runtime.GC()
				}
				if x := same.Call(); x != 0 {
					t.Errorf("same: %d", x)
				}
				if x := less.Call(); x >= 0 {
					t.Errorf("less: %d", x)
				}
				if x := more.Call(); x <= 0 {
					t.Errorf("more: %d", x)
				}
			}
		})
	}
	wg.Wait()
}

// deepen makes the goroutine's stack grow.
func deepen(n int) byte {
	var page [256]byte
	if n > 0 {
		page[n%256] = deepen(n-1) + 1
	}
	return page[7]
}

func TestCallAllocatesNothing(t *testing.T) {
	l := &ccall.List{Fn: function(t, "abs"), Args: [3]uintptr{5}}
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Call() }))
	require.EqualValues(t, 5, l.Call())
}

func BenchmarkCall(b *testing.B) {
	b.Run("list", func(b *testing.B) {
		l := &ccall.List{Fn: function(b, "abs"), Args: [3]uintptr{5}}
		for b.Loop() {
			l.Call()
		}
	})
	b.Run("purego", func(b *testing.B) {
		args := []uintptr{5, 0, 0}
		fn := function(b, "abs")
		for b.Loop() {
			purego.SyscallN(fn, args...)
		}
	})
}

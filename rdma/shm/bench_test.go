//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// BenchmarkPingPong is a round trip between two processes that spin on words in mapped memory.
func BenchmarkPingPong(b *testing.B) {
	s := newSide(b, rdma.EndpointOptions{})
	mem := s.alloc(b, childMemory)
	c := startChild(b, "spin", nil)
	c.meet(b, s, mem)
	theirs, err := s.Map(soon(b), c.card.Region)
	if err != nil {
		b.Fatal(err)
	}
	mine, count := hostmem.Word64(mem.Bytes(), 0), hostmem.Word64(theirs, 0)
	i := uint64(0)
	for b.Loop() {
		i++
		count.Store(i)
		for mine.Load() != i {
			cpu.Pause(1)
		}
	}
	count.Store(^uint64(0))
}

// BenchmarkBellWake is a round trip between two processes that both sleep each time.
func BenchmarkBellWake(b *testing.B) {
	s := newSide(b, rdma.EndpointOptions{})
	mem := s.alloc(b, childMemory)
	c := startChild(b, "sleep", nil)
	c.meet(b, s, mem)
	theirs, err := s.Map(soon(b), c.card.Region)
	if err != nil {
		b.Fatal(err)
	}
	mine, count := hostmem.Word64(mem.Bytes(), 0), hostmem.Word64(theirs, 0)
	bell := s.dev.Bell()
	i := uint64(0)
	for b.Loop() {
		i++
		count.Store(i)
		s.Signal()
		for mine.Load() != i {
			bell.Arm()
			if mine.Load() == i {
				bell.Disarm()
				break
			}
			bell.Sleep(time.Second)
		}
	}
	count.Store(^uint64(0))
	s.Signal()
}

func BenchmarkSignalToAnAwakePeer(b *testing.B) {
	s, _ := newPair(b)
	for b.Loop() {
		s.Signal()
	}
}

func BenchmarkPollNothing(b *testing.B) {
	s, _ := newPair(b)
	for b.Loop() {
		_, _ = s.cq.Poll(s.scratch[:])
	}
}

// BenchmarkWrite posts a write with immediate and polls it at the peer, in one goroutine.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{8, 4096, 64 << 10, 1 << 20} {
		b.Run(hostmem.Size(size), func(b *testing.B) {
			x, y := newPair(b)
			src, dst := x.alloc(b, size), y.alloc(b, size)
			ws := []rdma.Write{{Local: src.Bytes(), Region: src, Remote: dst.Remote(), HasImm: true}}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if n, err := x.Post(ws); n != 1 || err != nil {
					b.Fatal(n, err)
				}
				if n, err := y.cq.Poll(y.scratch[:]); n != 1 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}

func TestDataPathAllocatesNothing(t *testing.T) {
	x, y := newPair(t)
	src, dst := x.alloc(t, 4096), y.alloc(t, 4096)
	ws := []rdma.Write{{Local: src.Bytes(), Region: src, Remote: dst.Remote(), HasImm: true, Signaled: true}}
	allocs := testing.AllocsPerRun(100, func() {
		_, _ = x.Post(ws)
		_, _ = x.cq.Poll(x.scratch[:])
		_, _ = y.cq.Poll(y.scratch[:])
		x.Signal()
	})
	if allocs != 0 {
		t.Fatalf("%v allocations for a write, its completions and a signal", allocs)
	}
}

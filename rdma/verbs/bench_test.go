package verbs_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

// pair returns two connected ends in this process, on the first and the last port.
func pair(t testing.TB, size int) (a, b *end) {
	names := ports(t)
	var ends []*end
	for _, name := range []string{names[0], names[len(names)-1]} {
		o := quick
		o.HCA = "=" + name
		e, err := newEnd(o, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.dev.Close()) })
		require.NoError(t, e.mem.Close())
		e.mem, err = e.dev.Alloc(size, "verbs bench")
		require.NoError(t, err)
		ends = append(ends, e)
	}
	a, b = ends[0], ends[1]
	a.remote, b.remote = b.mem.Remote(), a.mem.Remote()
	require.NoError(t, a.ep.Connect(t.Context(), b.ep.Address()))
	require.NoError(t, b.ep.Connect(t.Context(), a.ep.Address()))
	return a, b
}

// drain polls until want completions of a kind have come, and fails on errors.
func (e *end) drain(t testing.TB, kind rdma.Kind, want int) {
	if e.scratch == nil {
		e.scratch = make([]rdma.Completion, 16)
	}
	cs := e.scratch
	var since time.Time
	for spins := 0; want > 0; spins++ {
		n, err := e.cq.Poll(cs)
		if err != nil {
			t.Error(err)
			return
		}
		for _, c := range cs[:n] {
			if c.Err != nil {
				t.Error(c.Err)
				return
			}
			if c.Kind == kind {
				want--
			}
		}
		if n > 0 {
			since = time.Time{}
		} else if spins%64 == 63 {
			runtime.Gosched()
			switch {
			case e.silence == 0:
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > e.silence:
				t.Errorf("nothing has completed for %v", e.silence)
				return
			}
		}
	}
}

// Post and Poll allocate nothing, whatever the batch.
func TestNoAllocations(t *testing.T) {
	a, b := pair(t, 1<<16)
	ws := make([]rdma.Write, 16)
	for i := range ws {
		ws[i] = rdma.Write{Local: a.mem.Bytes()[:64], Region: a.mem, Remote: a.remote, Signaled: i == 15, HasImm: i == 15, Inline: i%2 == 1}
	}
	a.batch(t, b, ws)
	allocs := testing.AllocsPerRun(50, func() { a.batch(t, b, ws) })
	require.Zero(t, allocs)
}

func (e *end) batch(t testing.TB, peer *end, ws []rdma.Write) {
	if n, err := e.ep.Post(ws); n != len(ws) || err != nil {
		t.Fatalf("took %d of %d: %v", n, len(ws), err)
	}
	e.drain(t, rdma.Wrote, 1)
	peer.drain(t, rdma.Received, 1)
}

// BenchmarkLatency is half a round trip of 8 bytes, inline: "imm" as links use it (write with
// immediate, polled completion; compare with ib_send_lat), "memory" as ib_write_lat (plain write, polled
// memory).
func BenchmarkLatency(b *testing.B) {
	b.Run("imm", func(b *testing.B) {
		x, y := pair(b, 1<<16)
		run := func(e *end, first bool) {
			w := []rdma.Write{{Local: e.mem.Bytes()[:8], Inline: true, Remote: e.remote, HasImm: true}}
			for i := range b.N {
				start := time.Now()
				if !first {
					e.drain(b, rdma.Received, 1)
				}
				w[0].Signaled = i%32 == 31
				if n, err := e.ep.Post(w); n != 1 || err != nil {
					b.Error(n, err)
					return
				}
				if first {
					e.drain(b, rdma.Received, 1)
					e.times = append(e.times, time.Since(start))
				}
			}
		}
		race(b, x, func() { run(x, true) }, func() { run(y, false) })
	})
	b.Run("memory", func(b *testing.B) {
		x, y := pair(b, 1<<16)
		run := func(e *end, first bool) {
			out, in := e.mem.Bytes()[:8], hostmem.Word64(e.mem.Bytes(), 64)
			w := []rdma.Write{{Local: out, Inline: true, Remote: e.remote, Offset: 64}}
			await := func(v uint64) {
				for spins := 1; in.Load() != v; spins++ {
					if spins%64 == 0 {
						runtime.Gosched()
					}
				}
			}
			for i := range b.N {
				start := time.Now()
				v := uint64(i + 1)
				if !first {
					await(v)
				}
				hostmem.Word64(out, 0).Store(v)
				w[0].Signaled = i%32 == 31
				if n, err := e.ep.Post(w); n != 1 || err != nil {
					b.Error(n, err)
					return
				}
				if w[0].Signaled {
					e.drain(b, rdma.Wrote, 1)
				}
				if first {
					await(v)
					e.times = append(e.times, time.Since(start))
				}
			}
		}
		race(b, x, func() { run(x, true) }, func() { run(y, false) })
	})
}

// race runs both ends of a ping-pong, and reports half a round trip as x has seen it: the least and
// the median, as perftest does (t_min, t_typical).
func race(b *testing.B, x *end, f, g func()) {
	x.times = make([]time.Duration, 0, b.N)
	b.ResetTimer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g()
	}()
	f()
	<-done
	b.StopTimer()
	slices.Sort(x.times)
	if n := len(x.times); n > 0 {
		b.ReportMetric(x.times[0].Seconds()*1e6/2, "min-µs")
		b.ReportMetric(x.times[n/2].Seconds()*1e6/2, "median-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBandwidth keeps up to 64 writes under way; compare with ib_write_bw. On soft-RoCE of kernel 6.1 it often stops
// for good with 64 KiB and 1 MiB, while its counters show only keep-alives: the benchmark gives up then.
func BenchmarkBandwidth(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			e, _ := pair(b, size)
			b.SetBytes(int64(size))
			w := []rdma.Write{{Local: e.mem.Bytes(), Region: e.mem, Remote: e.remote, Signaled: true}}
			depth := min(64, max(4, 8<<20/size))
			e.silence = 5 * time.Second
			b.ResetTimer()
			for i := range b.N {
				if i >= depth {
					e.drain(b, rdma.Wrote, 1)
				}
				if n, err := e.ep.Post(w); n != 1 || err != nil {
					b.Fatal(n, err)
				}
			}
			e.drain(b, rdma.Wrote, min(depth, b.N))
		})
	}
}

// BenchmarkOpen is what a rank pays at its start.
func BenchmarkOpen(b *testing.B) {
	name := ports(b)[0]
	for b.Loop() {
		d, err := verbs.Open(verbs.Options{HCA: "=" + name})
		require.NoError(b, err)
		require.NoError(b, d.Close())
	}
}

//go:build linux

package tcp

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// end is one end of a connection for benchmarks and white-box tests.
type end struct {
	dev *device
	cq  rdma.CQ
	ep  *endpoint
	mem rdma.Region
	cs  [32]rdma.Completion
}

func newEnd(tb testing.TB, opts Options, memory int) *end {
	tb.Helper()
	d, err := open(opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	x := &end{dev: d}
	x.cq, err = d.NewCQ(1024, func() {})
	require.NoError(tb, err)
	x.ep = x.endpoint(tb)
	x.mem, err = d.Alloc(memory, "test")
	require.NoError(tb, err)
	return x
}

func (x *end) endpoint(tb testing.TB) *endpoint {
	tb.Helper()
	e, err := x.dev.NewEndpoint(x.cq, rdma.EndpointOptions{})
	require.NoError(tb, err)
	return e.(*endpoint)
}

func join(tb testing.TB, a, b *endpoint) {
	tb.Helper()
	var g errgroup.Group
	g.Go(func() error { return a.Connect(tb.Context(), b.Address()) })
	g.Go(func() error { return b.Connect(tb.Context(), a.Address()) })
	require.NoError(tb, g.Wait())
}

func newEnds(tb testing.TB, opts Options, memory int) (a, b *end) {
	tb.Helper()
	a, b = newEnd(tb, opts, memory), newEnd(tb, opts, memory)
	join(tb, a.ep, b.ep)
	return a, b
}

// rawPair returns two connected, non-blocking TCP sockets.
func rawPair(tb testing.TB) (a, b int) {
	tb.Helper()
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	defer func() { _ = unix.Close(l) }()
	reno := func(fd int) { _ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") } // as ours, see unpaced
	reno(l)
	require.NoError(tb, unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(tb, unix.Listen(l, 1))
	at, err := unix.Getsockname(l)
	require.NoError(tb, err)
	a, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	reno(a)
	require.NoError(tb, unix.Connect(a, at))
	b, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC)
	require.NoError(tb, err)
	for _, fd := range []int{a, b} {
		require.NoError(tb, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		tb.Cleanup(func() { _ = unix.Close(fd) })
	}
	return a, b
}

// touched returns memory with pages of its own: those never written are one page of zeros in the
// cache.
func touched(n int) []byte { return bytes.Repeat([]byte{1}, n) }

func rawSend(fd int, b []byte) {
	var v vectors
	for len(b) > 0 {
		n, _ := v.send(fd, b, nil, nil)
		b = b[n:]
	}
}

func rawRecv(fd int, b []byte) {
	var v vectors
	for len(b) > 0 {
		n, _ := v.recv(fd, b, nil)
		b = b[n:]
	}
}

func (x *end) awaitReceived(n int) error {
	for n > 0 {
		k, err := x.cq.Poll(x.cs[:])
		if err != nil {
			return err
		}
		for _, c := range x.cs[:k] {
			if c.Err != nil {
				return c.Err
			}
			if c.Kind == rdma.Received {
				n--
			}
		}
	}
	return nil
}

// watchdog ends after 20 seconds of looking, without those in which the whole process was held.
type watchdog struct{ last, limit time.Time }

func newWatchdog() *watchdog {
	now := time.Now()
	return &watchdog{now, now.Add(20 * time.Second)}
}

func (w *watchdog) over() bool {
	now := time.Now()
	if gap := now.Sub(w.last); gap > time.Second {
		w.limit = w.limit.Add(gap)
	}
	w.last = now
	return now.After(w.limit)
}

// BenchmarkHalfRoundTrip compares an endpoint with sockets that are polled in the same way: ns/op is a
// round trip. Both run in turns, since the machine changes between runs.
func BenchmarkHalfRoundTrip(b *testing.B) {
	for _, size := range []int{8, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			fa, fb := rawPair(b)
			x, y := newEnds(b, Options{}, size)
			buf, buf2 := touched(size), touched(size)
			post := func(from, to *end) {
				w := [1]rdma.Write{{Local: from.mem.Bytes(), Region: from.mem, Remote: to.mem.Remote(), HasImm: true}}
				if n, err := from.ep.Post(w[:]); n != 1 {
					panic(err)
				}
			}
			const turn = 500
			var raw, ours time.Duration
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range b.N {
					for range turn {
						rawRecv(fb, buf2)
						rawSend(fb, buf2)
					}
					for range turn {
						_ = y.awaitReceived(1)
						post(y, x)
					}
				}
			}()
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				for range turn {
					rawSend(fa, buf)
					rawRecv(fa, buf)
				}
				mid := time.Now()
				for range turn {
					post(x, y)
					_ = x.awaitReceived(1)
				}
				raw += mid.Sub(start)
				ours += time.Since(mid)
			}
			<-done
			half := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(2*turn*b.N) }
			b.ReportMetric(half(raw), "raw-ns/half")
			b.ReportMetric(half(ours), "ns/half")
			b.ReportMetric(half(ours)/half(raw), "ratio")
		})
	}
}

// rawStreams are raw sockets that carry parts of the same chunks, served by one thread at each end.
type rawStreams []struct {
	fd   int
	v    vectors
	left int // bytes of the chunks that are still to go
}

// move sends or receives n bytes a stream, chunk by chunk, on whichever stream is ready.
func (ss rawStreams) move(n, chunk int, b []byte, op func(v *vectors, fd int, b []byte) int) {
	for i := range ss {
		ss[i].left = n
	}
	for busy := true; busy; {
		busy = false
		for i := range ss {
			s := &ss[i]
			if s.left == 0 {
				continue
			}
			busy = true
			at := (n - s.left) % (len(b) / len(ss))
			s.left -= op(&s.v, s.fd, b[i*len(b)/len(ss)+at:][:min(s.left, chunk-at%chunk)])
		}
	}
}

func rawStreamPairs(b *testing.B, n int) (from, to rawStreams) {
	from, to = make(rawStreams, n), make(rawStreams, n)
	for i := range n {
		from[i].fd, to[i].fd = rawPair(b)
	}
	return from, to
}

// BenchmarkOneWay compares the throughput of chunks one way, by one thread at each end, with as many raw
// sockets as the endpoint has.
func BenchmarkOneWay(b *testing.B) {
	for _, opts := range []Options{{}, {Sockets: 2}, {Sockets: 4}, {Checksum: true}} {
		for _, size := range []int{256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("sockets=%d,crc=%v/%d", max(1, opts.Sockets), opts.Checksum, size), func(b *testing.B) {
				const slots = 4
				streams := max(1, opts.Sockets)
				from, to := rawStreamPairs(b, streams)
				x, y := newEnds(b, opts, slots*size)
				src, dst := touched(slots*size), touched(slots*size)
				turn := (64 << 20) / size
				var raw, ours time.Duration
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range b.N {
						to.move(turn*size/streams, size/streams, dst, func(v *vectors, fd int, b []byte) int {
							n, _ := v.recv(fd, b, nil)
							return n
						})
						rawSend(to[0].fd, []byte{1})
						_ = y.awaitReceived(turn)
						_, _ = y.ep.Post([]rdma.Write{{HasImm: true}})
					}
				}()
				b.ResetTimer()
				for range b.N {
					start := time.Now()
					from.move(turn*size/streams, size/streams, src, func(v *vectors, fd int, b []byte) int {
						n, _ := v.send(fd, b, nil, nil)
						return n
					})
					rawRecv(from[0].fd, []byte{0})
					mid := time.Now()
					left := 1
					for i := 0; i < turn || left > 0; {
						if i < turn {
							at := i % slots * size
							w := [1]rdma.Write{{
								Local: x.mem.Bytes()[at : at+size], Region: x.mem, Remote: y.mem.Remote(), Offset: uint64(at),
								HasImm: true, Signaled: true,
							}}
							n, err := x.ep.Post(w[:])
							if err != nil {
								b.Fatal(err)
							}
							i += n
						}
						k, err := x.cq.Poll(x.cs[:])
						if err != nil {
							b.Fatal(err)
						}
						for _, c := range x.cs[:k] {
							if c.Kind == rdma.Received {
								left--
							}
						}
					}
					raw += mid.Sub(start)
					ours += time.Since(mid)
				}
				<-done
				rate := func(d time.Duration) float64 { return float64(b.N*turn*size) / d.Seconds() / 1e9 }
				b.ReportMetric(rate(raw), "raw-GB/s")
				b.ReportMetric(rate(ours), "GB/s")
				b.ReportMetric(rate(ours)/rate(raw), "ratio")
			})
		}
	}
}

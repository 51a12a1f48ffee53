//go:build linux

package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// The streams of the tests below: messages of changing lengths into a few slots that are used again and again, as
// links do. A slot is written again only when its message was received and the write is complete.
const (
	railSlots = 3
	railSlot  = 600 << 10
)

// railLengths are those of the messages, in turn: by the leading socket alone, and spread over all.
var railLengths = []int{8, 600 << 10, 0, 5000, 300 << 10, 70 << 10, 1}

// railStream is one direction.
type railStream struct {
	from, to       *end
	total          int
	posted, wrote  int
	received       int
	redirect       bool
	dst            [railSlots][]byte
	armed, untaken [railSlots]bool
}

func railLength(n int) int { return railLengths[n%len(railLengths)] }

// railFill writes what message n is made of.
func railFill(b []byte, n int) {
	for i := range b {
		b[i] = byte(i*7 + n*31 + i>>9)
	}
}

// railSeal is what a slot holds after its message was taken.
const railSeal = 0xee

// post posts the next message if its slot is free, and checks that nothing came late into the slot.
func (s *railStream) post(t *testing.T) bool {
	n := s.posted
	if n == s.total || n-s.received >= railSlots || n-s.wrote >= railSlots {
		return false
	}
	slot, size := n%railSlots, railLength(n)
	at := slot * railSlot
	local := s.from.mem.Bytes()[at : at+size]
	if s.untaken[slot] {
		last := s.to.mem.Bytes()[at : at+railLength(n-railSlots)]
		for i, x := range last {
			if x != railSeal {
				require.FailNow(t, "late bytes", "byte %d of the slot of message %d, long taken, has changed", i, n-railSlots)
			}
		}
	}
	railFill(local, n)
	if s.redirect && size > 0 {
		if s.dst[slot] == nil {
			s.dst[slot] = make([]byte, railSlot)
		}
		s.to.mem.(*region).Redirect(railSlots*railSlot+at, s.dst[slot])
		s.armed[slot] = true
	}
	k, err := s.from.ep.Post([]rdma.Write{{ID: uint64(n), Local: local, Region: s.from.mem, Remote: s.to.mem.Remote(),
		Offset: uint64(railSlots*railSlot + at), Imm: uint32(n), HasImm: true, Signaled: true}})
	require.NoError(t, err)
	s.posted += k
	return k > 0
}

// take checks a completion at the receiving end.
func (s *railStream) take(t *testing.T, c rdma.Completion) {
	n := s.received
	require.Equal(t, uint32(n), c.Imm, "each message once, in order")
	slot, size := n%railSlots, railLength(n)
	require.Equal(t, size, c.Len)
	at := railSlots*railSlot + slot*railSlot
	b := s.to.mem.Bytes()[at : at+size]
	if s.armed[slot] {
		s.armed[slot] = false
		if got := s.to.mem.(*region).Redirected(at); got >= 0 {
			require.Equal(t, size, got)
			b = s.dst[slot][:size]
		}
	}
	want := make([]byte, size)
	railFill(want, n)
	for i := range b {
		if b[i] != want[i] {
			require.FailNow(t, "wrong bytes", "message %d of %d bytes: byte %d is %#x, want %#x", n, size, i, b[i], want[i])
		}
	}
	for i := range b {
		b[i] = railSeal
	}
	s.received++
}

// poll moves one end on.
func (x *end) pollRails(t *testing.T, out, in *railStream) int {
	n, err := x.cq.Poll(x.cs[:])
	require.NoError(t, err)
	for _, c := range x.cs[:n] {
		if c.Kind == rdma.Received {
			in.take(t, c)
			continue
		}
		require.NoError(t, c.Err)
		require.Equal(t, uint64(out.wrote), c.ID)
		out.wrote++
	}
	return n
}

// railRun sends total messages both ways; at(n) is called before message n of the first direction is posted.
func railRun(t *testing.T, a, b *end, total int, redirect bool, at func(n int)) {
	ab := &railStream{from: a, to: b, total: total, redirect: redirect}
	ba := &railStream{from: b, to: a, total: total, redirect: redirect}
	next := 0
	for w := newWatchdog(); ab.wrote < total || ba.wrote < total; {
		require.False(t, w.over(), "stuck: %d and %d of %d received, %d and %d written; %s; %s",
			ab.received, ba.received, total, ab.wrote, ba.wrote, railState(a), railState(b))
		if at != nil && ab.posted == next {
			at(next)
			next++
		}
		ab.post(t)
		ba.post(t)
		a.pollRails(t, ab, ba)
		b.pollRails(t, ba, ab)
	}
	require.Equal(t, total, ab.received)
	require.Equal(t, total, ba.received)
}

// railState says where an end is.
func railState(x *end) string {
	e := x.ep
	e.cq.mu.Lock()
	defer e.cq.mu.Unlock()
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	s := fmt.Sprintf("done %d next %d+%d tail %d, landing %d+%d, %+v", e.tx.done, e.tx.next, e.tx.off, e.tx.tail, e.rx.seq, e.rx.got, e.rails)
	for _, l := range e.lanes {
		s += fmt.Sprintf("; lane %d: in state %d write %d eof %v over %v, out empty %v blocked %v stuck %v",
			l.index, l.in.state, l.in.h.seq, l.in.eof, l.in.over, l.out.empty(), l.out.blocked, l.out.stuck)
	}
	return s
}

// railEnds is newWatchedEnds with a log.
func railEnds(t *testing.T, opts Options) (a, b *end, lostA, lostB chan error, log *observer.ObservedLogs) {
	core, log := observer.New(zapcore.WarnLevel)
	opts.Log = zap.New(core)
	a, b, lostA, lostB = newWatchedEnds(t, opts, 2*railSlots*railSlot)
	return a, b, lostA, lostB, log
}

// breakers are ways in which a socket fails.
var breakers = map[string]func(t *testing.T, l *lane){
	"shutdown": func(t *testing.T, l *lane) {
		l.withTCP(func(fd int) { shut(t, fd, unix.SHUT_RDWR) })
	},
	"no more to send": func(t *testing.T, l *lane) {
		l.withTCP(func(fd int) { shut(t, fd, unix.SHUT_WR) })
	},
	"reset": resetLane,
}

func shut(t *testing.T, fd, how int) {
	if err := unix.Shutdown(fd, how); err != unix.ENOTCONN { // it may have failed already
		assert.NoError(t, err)
	}
}

// resetLane resets the connection as seen by the peer, and ends it here. Nobody may be polling.
func resetLane(t *testing.T, l *lane) {
	if l.relay != nil {
		require.NoError(t, l.relay.tcp.SetLinger(0))
		require.NoError(t, l.relay.tcp.Close())
		return
	}
	require.NoError(t, unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Dup3(p[0], l.fd, unix.O_CLOEXEC)) // which closes the connection
	require.NoError(t, unix.Close(p[0]))
	require.NoError(t, unix.Close(p[1]))
	// The sets knew the connection, not its number: without this the end would never be noticed here.
	require.NoError(t, l.e.cq.watch.add(l))
	if l.in.listed {
		require.NoError(t, control(l.e.cq.in, unix.EPOLL_CTL_ADD, l.fd, unix.EPOLLIN, l.slot))
	}
	if l.out.listed {
		require.NoError(t, control(l.e.cq.out, unix.EPOLL_CTL_ADD, l.fd, unix.EPOLLOUT|unix.EPOLLET, l.slot))
	}
}

// railAt returns an open lane of an endpoint, counted from the end if i is negative.
func railAt(e *endpoint, i int) *lane {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	return e.lanes[(i+len(e.lanes))%len(e.lanes)]
}

// A socket that fails at any message of a stream costs nothing but time: every message arrives once, in order,
// whole, and nothing arrives later in its place. Every message is tried with GCCL_PROVE=1, otherwise some.
func TestRailFails(t *testing.T) {
	const total = 18
	for name, brk := range breakers {
		for _, opts := range []Options{{Sockets: 2}, {Sockets: 4}, {Sockets: 2, Checksum: true}, {Sockets: 3, Encrypt: true}} {
			step := 5
			if os.Getenv("GCCL_PROVE") != "" {
				step = 1
			}
			t.Run(fmt.Sprintf("%s/sockets=%d,tls=%v,crc=%v", name, opts.Sockets, opts.Encrypt, opts.Checksum), func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				for n := (opts.Sockets + len(name)) % step; n < total; n += step {
					t.Run("", func(t *testing.T) {
						a, b, lostA, lostB, log := railEnds(t, opts)
						x, lane := []*end{a, b}[n&1], n/2%opts.Sockets
						path := ""
						railRun(t, a, b, total+6, n%3 == 0, func(k int) {
							if k == n {
								l := railAt(x.ep, lane)
								path = l.path
								brk(t, l)
							}
						})
						awaitLost(t, a, b, 1)
						require.Empty(t, lostA)
						require.Empty(t, lostB)
						seen := log.FilterMessageSnippet("lost a socket").All()
						require.Len(t, seen, 2, "one line at each end")
						paths := []any{seen[0].ContextMap()["addresses"], seen[1].ContextMap()["addresses"]}
						require.Contains(t, paths, path)
						railRun(t, a, b, 10, false, nil)
					})
				}
			})
		}
	}
}

// awaitLost polls until both ends have agreed on n lost sockets.
func awaitLost(t *testing.T, a, b *end, n int) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); ; {
		left := 0
		for _, x := range []*end{a, b} {
			k, err := x.cq.Poll(x.cs[:])
			require.NoError(t, err)
			require.Zero(t, k, "something came once more")
			x.ep.tx.mu.Lock()
			if r := x.ep.rails; r.send.Dead().Len() != n || r.send.Held() || x.ep.tx.wants.Load() {
				left++
			}
			x.ep.tx.mu.Unlock()
		}
		if left == 0 {
			return
		}
		require.True(t, time.Now().Before(limit), "the ends do not agree")
	}
}

// Sockets fail one after the other in the middle of traffic until one is left; with it the connection ends, and
// both ends say what happened to each.
func TestLastRail(t *testing.T) {
	for name, brk := range breakers {
		t.Run(name, func(t *testing.T) {
			a, b, lostA, lostB, _ := railEnds(t, Options{Sockets: 4})
			var paths []string
			for left := 4; left > 1; left-- {
				railRun(t, a, b, 12, left == 3, func(k int) {
					if k == 5 {
						l := railAt([]*end{a, b}[left&1].ep, left*7)
						paths = append(paths, l.path)
						brk(t, l)
					}
				})
				awaitLost(t, a, b, 5-left)
			}
			brk(t, railAt(a.ep, 0))
			errA, errB := pollBoth(t, a, b, lostA), pollBoth(t, a, b, lostB)
			for _, err := range []error{errA, errB} {
				assert.ErrorIs(t, err, rdma.ErrPeerLost)
				for i := range 4 {
					assert.ErrorContains(t, err, fmt.Sprintf("socket %d (", i))
				}
			}
			for i, p := range paths {
				assert.Contains(t, errA.Error()+errB.Error(), p, "%d", i)
			}
		})
	}
}

// When a peer dies all its sockets end: that is a lost peer, at once, and no socket is said to be lost.
func TestPeerDiesWithRails(t *testing.T) {
	for name, brk := range breakers {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/busy=%v", name, busy), func(t *testing.T) {
				a, b, lostA, _, log := railEnds(t, Options{Sockets: 3})
				if busy {
					_, err := a.ep.Post([]rdma.Write{{Local: a.mem.Bytes(), Region: a.mem, Remote: b.mem.Remote(), HasImm: true, Signaled: true}})
					require.NoError(t, err)
				}
				for i := range 3 {
					brk(t, railAt(b.ep, i))
				}
				for limit := time.Now().Add(20 * time.Second); len(lostA) == 0; {
					require.True(t, time.Now().Before(limit), "the loss is not noticed")
					_, err := a.cq.Poll(a.cs[:])
					require.NoError(t, err)
				}
				err := <-lostA
				assert.ErrorIs(t, err, rdma.ErrPeerLost)
				assert.ErrorContains(t, err, "all 3 sockets failed")
				assert.Zero(t, log.FilterMessageSnippet("lost a socket").Len())
			})
		}
	}
}

// A socket over which nothing comes through any more, in both directions or in one, is given up within DeadAfter.
func TestSilentRail(t *testing.T) {
	for _, both := range []bool{true, false} {
		t.Run(fmt.Sprintf("both=%v", both), func(t *testing.T) {
			t.Parallel()
			a, b, _, _, log := railEnds(t, Options{Sockets: 2, DeadAfter: minDeadAfter})
			railRun(t, a, b, 30, true, func(k int) {
				if k != 10 {
					return
				}
				muffle(t, railAt(b.ep, 0))
				if both {
					muffle(t, railAt(a.ep, 0))
				}
			})
			awaitLost(t, a, b, 1)
			assert.Equal(t, 2, log.FilterMessageSnippet("lost a socket").Len())
		})
	}
}

// Both ends by goroutines of their own, and sockets that fail at random moments.
func TestRailsAtRandom(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for seed := range uint64(rounds) {
		a, b, _, _, _ := railEnds(t, Options{Sockets: 4})
		rng := rand.New(rand.NewPCG(seed, 1))
		stop := make(chan struct{})
		broke := make(chan struct{})
		go func() {
			defer close(broke)
			names := []string{"shutdown", "no more to send", "reset"}
			for range 3 {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rng.IntN(30)) * time.Millisecond):
				}
				x := []*end{a, b}[rng.IntN(2)]
				x.ep.cq.mu.Lock()
				x.ep.tx.mu.Lock()
				if n := len(x.ep.lanes); n > 1 {
					breakers[names[rng.IntN(3)]](t, x.ep.lanes[rng.IntN(n)])
				}
				x.ep.tx.mu.Unlock()
				x.ep.cq.mu.Unlock()
			}
		}()
		err := railSides(t, a, b, 60)
		close(stop)
		<-broke
		require.NoError(t, err, "seed %d", seed)
	}
}

// railSides is railRun with an end a goroutine: what an end may do, the other tells it by what it has counted.
func railSides(t *testing.T, a, b *end, total int) error {
	var g errgroup.Group
	var received [2]atomic.Int64
	for i, x := range []*end{a, b} {
		peer := []*end{b, a}[i]
		g.Go(func() error {
			posted, wrote, got := 0, 0, 0
			for w := newWatchdog(); wrote < total || got < total; {
				if w.over() {
					return fmt.Errorf("end %d is stuck: %d posted, %d written, %d received of %d", i, posted, wrote, got, total)
				}
				if posted < total && posted-wrote < railSlots && posted-int(received[1-i].Load()) < railSlots {
					at, size := posted%railSlots*railSlot, railLength(posted)
					railFill(x.mem.Bytes()[at:at+size], posted)
					k, err := x.ep.Post([]rdma.Write{{ID: uint64(posted), Local: x.mem.Bytes()[at : at+size], Region: x.mem, Remote: peer.mem.Remote(),
						Offset: uint64(railSlots*railSlot + at), Imm: uint32(posted), HasImm: true, Signaled: true}})
					if err != nil {
						return err
					}
					posted += k
				}
				n, err := x.cq.Poll(x.cs[:])
				if err != nil {
					return err
				}
				for _, c := range x.cs[:n] {
					switch {
					case c.Err != nil:
						return c.Err
					case c.Kind == rdma.Wrote:
						wrote++
						continue
					case c.Imm != uint32(got):
						return fmt.Errorf("message %d came instead of %d", c.Imm, got)
					}
					at, size := railSlots*railSlot+got%railSlots*railSlot, railLength(got)
					want := make([]byte, size)
					railFill(want, got)
					if !bytes.Equal(want, x.mem.Bytes()[at:at+size]) {
						return fmt.Errorf("message %d is wrong", got)
					}
					got++
					received[i].Store(int64(got))
				}
				if n == 0 {
					runtime.Gosched()
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// A write outside of what the peer has described fails whatever was posted before it, also writes of which the
// peer tells nothing because they are unsignaled.
func TestRefusedWriteAfterUnsignaled(t *testing.T) {
	for _, size := range []int{8, 600 << 10} {
		a, b, lostA, _ := newWatchedEnds(t, Options{Sockets: 2}, size)
		good := rdma.Write{Local: touched(size), Remote: b.mem.Remote(), HasImm: true}
		bad := good
		bad.ID, bad.Offset, bad.Signaled = 7, 1, true
		signaled := good
		signaled.ID, signaled.Signaled = 1, true
		k, err := a.ep.Post([]rdma.Write{signaled, good, bad})
		require.NoError(t, err)
		require.Equal(t, 3, k)
		var done []rdma.Completion
		for limit := time.Now().Add(10 * time.Second); len(done) < 3; {
			require.True(t, time.Now().Before(limit), "stuck: %v", done)
			n, err := a.cq.Poll(a.cs[:])
			require.NoError(t, err)
			done = append(done, a.cs[:n]...)
			_, err = b.cq.Poll(b.cs[:])
			require.NoError(t, err)
		}
		require.NoError(t, done[0].Err, "it has landed")
		require.EqualValues(t, 7, done[2].ID)
		require.ErrorIs(t, done[2].Err, rdma.ErrAccess)
		require.ErrorIs(t, pollBoth(t, a, b, lostA), rdma.ErrAccess)
	}
}

//go:build linux && (amd64 || arm64) && !noverbs

package verbs_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

const (
	railSlots = 6
	railSlot  = 192 << 10
)

// railsEnd is one side of a connection under faults. It sends numbered messages into its peer's slots, each when the
// slot's last one has been delivered, and judges what it gets.
type railsEnd struct {
	cq       rdma.CQ
	ep       rdma.Endpoint
	mem, src rdma.Region
	remote   rdma.RemoteRegion
	lost     chan error

	posted, wrote, got, credit int
	own                        []byte
}

func newRailsEnd(t *testing.T, d rdma.Device) *railsEnd {
	t.Helper()
	e := &railsEnd{lost: make(chan error, 1), own: make([]byte, 8)}
	var err error
	e.cq, err = d.NewCQ(256, nil)
	require.NoError(t, err)
	e.ep, err = d.NewEndpoint(e.cq, rdma.EndpointOptions{RecvDepth: railSlots, OnLost: func(err error) { e.lost <- err }})
	require.NoError(t, err)
	e.mem, err = d.Alloc(railSlots*railSlot, "rails test")
	require.NoError(t, err)
	e.src, err = d.Alloc(railSlots*railSlot, "rails test")
	require.NoError(t, err)
	return e
}

func (e *railsEnd) close(t *testing.T) {
	t.Helper()
	require.NoError(t, e.ep.Close())
	require.NoError(t, e.cq.Close())
	require.NoError(t, e.mem.Close())
	require.NoError(t, e.src.Close())
}

// lengths are those of messages in turn: the first part without, the second with immediate data. Short, inline, empty,
// cut and not.
var lengths = [][2]int{{0, 8}, {0, verbs.StripeMin}, {0, 100}, {verbs.StripeMin + 5000, 30}, {0, 0}, {3000, verbs.StripeMin + 1}, {0, 3 * 4096}}

func (e *railsEnd) send(t *testing.T) {
	t.Helper()
	for e.posted-e.credit < railSlots && e.posted-e.wrote < railSlots {
		n := e.posted
		at := n % railSlots * railSlot
		first, second := lengths[n%len(lengths)][0], lengths[n%len(lengths)][1]
		from := e.src.Bytes()[at : at+first+second]
		for i := range from {
			from[i] = byte(n + i>>10)
		}
		w := rdma.Write{ID: uint64(n), Local: from[first:], Region: e.src, Remote: e.remote, Offset: uint64(at + first), Imm: uint32(n) * 0x01010101, HasImm: true, Signaled: true}
		inline := second == 8
		if inline {
			copy(e.own, from)
			w.Local, w.Region, w.Inline = e.own, nil, true
		}
		var ws []rdma.Write
		if first > 0 {
			ws = append(ws, rdma.Write{Local: from[:first], Region: e.src, Remote: e.remote, Offset: uint64(at)})
		}
		k, err := e.ep.Post(append(ws, w))
		require.NoError(t, err)
		require.Equal(t, len(ws)+1, k)
		if inline {
			clear(e.own)
		}
		e.posted++
	}
}

// poll judges completions: in order, once, with the bytes in place; peer gets its slots back.
func (e *railsEnd) poll(t *testing.T, peer *railsEnd) {
	t.Helper()
	var cs [3]rdma.Completion
	k, err := e.cq.Poll(cs[:])
	require.NoError(t, err)
	for _, c := range cs[:k] {
		require.NoError(t, c.Err)
		if c.Kind == rdma.Wrote {
			require.Equal(t, uint64(e.wrote), c.ID)
			clear(e.src.Bytes()[e.wrote%railSlots*railSlot:][:railSlot]) // it is ours again, whatever is sent again
			e.wrote++
			continue
		}
		require.Equal(t, uint32(e.got)*0x01010101, c.Imm)
		l := lengths[e.got%len(lengths)]
		require.Equal(t, l[1], c.Len)
		at := e.got % railSlots * railSlot
		for i, x := range e.mem.Bytes()[at : at+l[0]+l[1]] {
			if x != byte(e.got+i>>10) {
				require.Fail(t, "wrong byte", "message %d, byte %d of %v: %d", e.got, i, l, x)
			}
		}
		clear(e.mem.Bytes()[at:][:railSlot]) // nothing may come into it late
		binary.LittleEndian.PutUint64(e.mem.Bytes()[at+railSlot-8:], uint64(e.got))
		e.got++
		peer.credit++
	}
}

func connectRails(t *testing.T, d1, d2 rdma.Device) (a, b *railsEnd) {
	t.Helper()
	a, b = newRailsEnd(t, d1), newRailsEnd(t, d2)
	a.remote, b.remote = b.mem.Remote(), a.mem.Remote()
	require.NoError(t, a.ep.Connect(t.Context(), b.ep.Address()))
	require.NoError(t, b.ep.Connect(t.Context(), a.ep.Address()))
	return a, b
}

// exchange has both ends send n messages, polling them in an order by seed, until all have come and are complete.
func exchange(t *testing.T, a, b *railsEnd, n int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	done := func(e *railsEnd) bool { return e.got >= n && e.wrote >= n }
	for until := time.Now().Add(patience); !done(a) || !done(b); {
		require.True(t, time.Now().Before(until), "no progress: %d and %d got, %d and %d wrote", a.got, b.got, a.wrote, b.wrote)
		x, y := a, b
		if rng.IntN(2) == 0 {
			x, y = b, a
		}
		if rng.IntN(2) == 0 && x.posted < n {
			x.send(t)
		} else {
			x.poll(t, y)
		}
		runtime.Gosched()
	}
	require.Empty(t, a.lost)
	require.Empty(t, b.lost)
}

// twoRails opens the devices of two ends, each on both of the library's.
func twoRails(t *testing.T, n int) (a, b rdma.Device) {
	names := ports(t)
	x, y := openRails(t, names, n, quick), openRails(t, names, n, quick)
	t.Cleanup(func() {
		require.NoError(t, x.Close())
		require.NoError(t, y.Close())
	})
	return x, y
}

// A card needs no polls to send what was posted; who takes over from a rail that fails does.
func TestAutonomous(t *testing.T) {
	names := ports(t)
	d, r := openPort(t, names[0], quick), openRails(t, names[:1], 2, quick)
	defer d.Close()
	defer r.Close()
	require.True(t, d.Attr().Autonomous)
	require.False(t, r.Attr().Autonomous)
}

// Messages of all kinds both ways, over several queue pairs on one port and on two.
func TestRailsExchange(t *testing.T) {
	names := ports(t)
	for _, c := range []struct {
		n     int
		ports []string
	}{{2, names[:1]}, {2, names}, {3, names}} {
		t.Run(fmt.Sprintf("%d on %d", c.n, len(c.ports)), func(t *testing.T) {
			d1, d2 := openRails(t, c.ports, c.n, quick), openRails(t, c.ports, c.n, quick)
			defer d1.Close()
			defer d2.Close()
			a, b := connectRails(t, d1, d2)
			exchange(t, a, b, 60, 1)
			require.Equal(t, c.n, verbs.RailsLeft(a.ep))
		})
	}
}

// Each rail fails at each of its requests, before its bytes have landed, before the peer has heard of them, and before
// the sender has: everything comes once, in order, with the right bytes, and nothing late.
func TestRailsFailAnywhere(t *testing.T) {
	call := control(t)
	d1, d2 := twoRails(t, 3)
	for victim := range 3 {
		for kind := range 3 {
			for at := 1; at <= 12; at++ {
				a, b := connectRails(t, d1, d2)
				call("fake_fault", uintptr(verbs.RailQP(a.ep, victim)), uintptr(at), uintptr(kind))
				exchange(t, a, b, 24, uint64(at*9+victim*3+kind))
				if at <= 9 {
					require.Equal(t, 2, verbs.RailsLeft(a.ep), "rail %d has no request %d", victim, at)
				}
				a.close(t)
				b.close(t)
			}
		}
	}
}

// Rails deliver late, and each at times of its own, while one fails: what is still under way on the others when the
// sender wants to begin again neither lands over what came after it, nor counts as what is sent again.
func TestRailsFailWithOthersLate(t *testing.T) {
	call := control(t)
	d1, d2 := twoRails(t, 3)
	lost := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		a, b := connectRails(t, d1, d2)
		exchange(t, a, b, 3, seed)
		for _, e := range []*railsEnd{a, b} {
			for i := range 3 {
				call("fake_lag", uintptr(verbs.RailQP(e.ep, i)), uintptr(1+rng.IntN(200)), uintptr(seed))
			}
		}
		call("fake_fault", uintptr(verbs.RailQP([]*railsEnd{a, b}[rng.IntN(2)].ep, rng.IntN(3))), uintptr(1+rng.IntN(15)), uintptr(rng.IntN(3)))
		exchange(t, a, b, 40, seed)
		lost += 3 - verbs.RailsLeft(a.ep)
		a.close(t)
		b.close(t)
	}
	require.Greater(t, lost, 120, "lost rails, of 150")
}

// A second rail fails while the first is replaced, or later, at either end.
func TestRailsFailTwice(t *testing.T) {
	call := control(t)
	d1, d2 := twoRails(t, 3)
	twice := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a, b := connectRails(t, d1, d2)
		order := rng.Perm(3)
		call("fake_fault", uintptr(verbs.RailQP([]*railsEnd{a, b}[rng.IntN(2)].ep, order[0])), uintptr(1+rng.IntN(12)), uintptr(rng.IntN(3)))
		second := 1 + rng.IntN(12)
		exchange(t, a, b, second, seed)
		call("fake_fault", uintptr(verbs.RailQP([]*railsEnd{a, b}[rng.IntN(2)].ep, order[1])), uintptr(1+rng.IntN(12)), uintptr(rng.IntN(3)))
		exchange(t, a, b, 30, seed)
		twice += 3 - verbs.RailsLeft(a.ep)
		a.close(t)
		b.close(t)
	}
	require.Greater(t, twice, 70, "lost rails, of 120")
}

// When the last one is lost, both ends hear of it, with what became of each.
func TestRailsFailAll(t *testing.T) {
	control(t)
	d1, d2 := twoRails(t, 3)
	a, b := connectRails(t, d1, d2)
	exchange(t, a, b, 5, 1)
	for i := range 3 {
		verbs.ForceRailError(a.ep, i)
	}
	cs := make([]rdma.Completion, 16)
	for _, e := range []*railsEnd{a, b} {
		for until := time.Now().Add(patience); len(e.lost) == 0; runtime.Gosched() {
			require.True(t, time.Now().Before(until), "OnLost was not called")
			_, err := a.cq.Poll(cs)
			require.NoError(t, err)
		}
		err := <-e.lost
		require.ErrorIs(t, err, rdma.ErrPeerLost)
		for i := range 3 {
			require.ErrorContains(t, err, fmt.Sprintf("%d: verbs: ", i))
		}
		_, err = e.ep.Post([]rdma.Write{{Signaled: true}})
		require.ErrorIs(t, err, rdma.ErrPeerLost)
	}
}

// cut has a wire carry nothing.
func cut(t *testing.T, wire string) {
	t.Helper()
	for _, end := range []string{"0", "1"} {
		sh(t, "tc qdisc replace dev "+wire+end+" root netem loss 100%")
	}
}

// One of two wires is cut under traffic: the job goes on, and every byte is right. Then the other: both ends hear of it.
func TestRailsWireCut(t *testing.T) {
	ports(t)
	inLab(t)
	if os.Getenv(hostsVariable) != "" {
		t.Skip("this is the part for one host")
	}
	sh(t, "secondwire up")
	t.Cleanup(func() { sh(t, "secondwire down") })
	for _, victim := range []string{"w", "v"} {
		t.Run(victim, func(t *testing.T) {
			d1 := openRails(t, []string{"rxe0:1", "rxe2:1"}, 2, quick)
			defer d1.Close()
			d2 := openRails(t, []string{"rxe1:1", "rxe3:1"}, 2, quick)
			defer d2.Close()
			a, b := connectRails(t, d1, d2)
			exchange(t, a, b, 20, 1)
			cut(t, victim)
			start := time.Now()
			exchange(t, a, b, 60, 2)
			row(t, time.Since(start), fmt.Sprintf("one of two wires cut: 40 more messages each way right, %d queue pairs left", verbs.RailsLeft(a.ep)))
			require.Equal(t, 1, verbs.RailsLeft(a.ep))
			require.Equal(t, 1, verbs.RailsLeft(b.ep))
			other := map[string]string{"v": "w", "w": "v"}[victim]
			cut(t, other)
			start = time.Now()
			cs := make([]rdma.Completion, 16)
			for _, e := range []*railsEnd{a, b} {
				for until := time.Now().Add(patience); len(e.lost) == 0; time.Sleep(time.Millisecond) {
					require.True(t, time.Now().Before(until), "OnLost was not called")
					_, err := e.cq.Poll(cs)
					require.NoError(t, err)
				}
				err := <-e.lost
				require.ErrorIs(t, err, rdma.ErrPeerLost)
				row(t, time.Since(start), err)
			}
			sh(t, "for i in v0 v1 w0 w1; do tc qdisc del dev $i root; done")
		})
	}
}

package link

import (
	"bytes"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// windowed connects two ranks over posted writes that have a window of n bytes each, and returns the windows' bytes.
func windowed(t require.TestingT, g Geometry, n int) (a, b *Mesh, mem [2][]byte) {
	a, b = pair(t, g, true)
	var regions [2]rdma.Region
	for r, m := range []*Mesh{a, b} {
		var err error
		regions[r], err = m.Peer(1-r).port.dev.Alloc(n, "window")
		require.NoError(t, err)
		mem[r] = regions[r].Bytes()[:n]
	}
	for r, m := range []*Mesh{a, b} {
		m.Peer(1-r).SetWindow(1, regions[r], regions[1-r].Remote(), nil)
	}
	return a, b, mem
}

func progress(t require.TestingT, ms ...*Mesh) {
	for _, m := range ms {
		_, err := m.Progress()
		require.NoError(t, err)
	}
}

// sending is a transfer on its way out, as an engine sends it.
type sending struct {
	s    *wireSender
	src  []byte
	at   Place // of src; zero: it is copied
	call Call
	sent int
}

// step sends a message, if it may. most bounds what is copied at once.
func (x *sending) step(most int) bool {
	rest := x.src[x.sent:]
	if len(rest) == 0 {
		return false
	}
	if x.at.Window == 0 {
		b, ok := x.s.Reserve(len(rest))
		if !ok {
			return false
		}
		if len(b) > InlineBytes {
			b = b[:min(len(b), most)]
		}
		x.s.Commit(copy(b, rest), &x.call)
		x.sent += len(b)
		return true
	}
	at := x.at
	at.Offset += uint64(x.sent)
	n, ok := x.s.ReserveFrom(rest, at, &x.call)
	if !ok {
		return false
	}
	x.s.CommitFrom(rest[:n], &x.call)
	x.sent += n
	return true
}

// receive takes what is there of a transfer to dst.
func receive(t require.TestingT, r Receiver, dst []byte, got int, c *Call) (n int, placed bool) {
	m, err := r.Peek(c)
	require.NoError(t, err)
	if m == nil {
		return 0, false
	}
	require.LessOrEqual(t, m.Len, len(dst)-got)
	n = m.Len
	if !m.Placed {
		copy(dst[got:], m.Data)
	}
	placed = m.Placed
	r.Advance(n)
	return n, placed
}

// However two ends of a lane are registered, and whichever of them is ahead, a transfer arrives as it was sent, and no other byte of
// the window changes. The transfers of a call follow each other with its fingerprint, as those of windows do.
func TestGrantedTransfersArrive(t *testing.T) {
	const most = 6 * GrantMin
	ways := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		g := Geometry{Lanes: 2, Slots: 1 << rapid.IntRange(1, 4).Draw(t, "slots"), SlotBytes: GrantMin / 8 << rapid.IntRange(0, 4).Draw(t, "slot")}
		a, b, mem := windowed(t, g, most+64)
		s, r := a.Peer(1).Sender(1).(*wireSender), b.Peer(0).Receiver(1).(*wireReceiver)
		call := Call{FP: 1}
		for i := range rapid.IntRange(1, 6).Draw(t, "transfers") {
			if rapid.Bool().Draw(t, "another call") {
				call.FP++
			}
			n := rapid.OneOf(rapid.IntRange(GrantMin, most), rapid.SampledFrom([]int{GrantMin, g.SlotBytes * 4, 2*GrantMin + 5})).Draw(t, "bytes")
			n = min(n, most)
			off := rapid.IntRange(0, 64).Draw(t, "offset")
			x := sending{s: s, src: mem[0][off:][:n], call: call}
			if rapid.Bool().Draw(t, "source is registered") {
				x.at = Place{1, uint64(off)}
			} else {
				x.src = make([]byte, n)
			}
			dst, at := mem[1][off:][:n], Place{1, uint64(off)}
			if !rapid.Bool().Draw(t, "destination is registered") {
				dst, at = make([]byte, n), Place{}
			}
			for k := range x.src {
				x.src[k] = byte(k + k>>8 + i)
			}
			want := bytes.Clone(mem[1])
			if at.Window != 0 {
				copy(want[off:], x.src)
			}
			s.Begin(n)
			for range rapid.IntRange(0, 3).Draw(t, "messages ahead") {
				x.step(g.SlotBytes)
			}
			eager := rapid.IntRange(0, 2).Draw(t, "steps of the sender")
			if rapid.Bool().Draw(t, "arrive") {
				progress(t, b)
			}
			r.Expect(dst, at, &call)
			s.transfer.hasty = s.transfer.hasty || at.Window == 0 // nobody waits for the clock here
			for got := 0; got < n; {
				if rapid.Bool().Draw(t, "sender polls") {
					progress(t, a)
				}
				for range eager {
					x.step(rapid.IntRange(1, g.SlotBytes).Draw(t, "cut"))
				}
				eager = 1
				progress(t, b)
				k, placed := receive(t, r, dst, got, &call)
				if got += k; k > 0 {
					ways[placed]++
				}
				if k == 0 {
					progress(t, a)
				}
			}
			require.True(t, bytes.Equal(x.src, dst), "transfer %d of %d bytes", i, n)
			require.True(t, bytes.Equal(want, mem[1]), "bytes beside the transfer")
			progress(t, a)
			require.True(t, a.Drained())
			require.False(t, b.Exposed(), "a grant outlives its transfer")
			require.False(t, a.Exposed())
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	require.NotZero(t, ways[true])
	require.NotZero(t, ways[false])
}

// A sender uses a grant for the transfer that it is for: not for one of another length, call or place in the order.
func TestGrantIsForOneTransfer(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	const n = 2 * GrantMin
	for name, tt := range map[string]struct {
		size   int
		fp     uint64
		before int // short messages
		placed bool
	}{
		"it": {n, 7, 0, true}, "longer": {n + 1, 7, 0, false}, "shorter": {n - 1, 7, 0, false}, "another call": {n, 8, 0, false}, "later": {n, 7, 1, false},
	} {
		a, b, mem := windowed(t, g, 4*GrantMin)
		b.Peer(0).Receiver(0).(*wireReceiver).Expect(mem[1][:n], Place{1, 0}, &Call{FP: 7})
		progress(t, a)
		s := a.Peer(1).Sender(0).(*wireSender)
		for range tt.before {
			require.True(t, s.Put([]byte("short"), &Call{FP: 7}))
		}
		s.Begin(tt.size)
		x := sending{s: s, src: mem[0][:tt.size], at: Place{1, 0}, call: Call{FP: tt.fp}}
		fill := bytes.Repeat([]byte{0xa5}, len(mem[0]))
		copy(mem[0], fill)
		require.True(t, x.step(0))
		require.Equal(t, tt.placed, x.sent == tt.size, name)
		require.Equal(t, tt.placed, bytes.Equal(mem[1][:n], fill[:n]), name)
		require.Equal(t, make([]byte, 2*GrantMin), mem[1][n:][:2*GrantMin], name)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// Grants given ahead are for transfers to come, in any order of giving and use; there are so many at most.
func TestGrantsAhead(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	a, b, mem := windowed(t, g, 16*GrantMin)
	s, r := a.Peer(1).Sender(0).(*wireSender), b.Peer(0).Receiver(0).(*wireReceiver)
	call := func(i int) *Call { return &Call{FP: uint64(100 + i)} }
	given := 0
	for round := range 3 * grantLines {
		for ; given < round+2*grantLines; given++ {
			if !r.ExpectAhead(GrantMin, Place{1, uint64(given%16) * GrantMin}, call(given)) {
				break
			}
		}
		require.Equal(t, round+grantLines, given, "so many at most")
		progress(t, a)
		src := bytes.Repeat([]byte{byte(round + 1)}, GrantMin)
		s.Begin(len(src))
		x := sending{s: s, src: src, call: *call(round)}
		for x.step(g.SlotBytes) {
		}
		require.Equal(t, GrantMin, x.sent)
		progress(t, b)
		dst := mem[1][round%16*GrantMin:][:GrantMin]
		r.Expect(dst, Place{1, uint64(round%16) * GrantMin}, call(round))
		n, placed := receive(t, r, dst, 0, call(round))
		require.True(t, placed)
		require.Equal(t, GrantMin, n)
		require.Equal(t, src, dst)
	}
	require.False(t, r.ExpectAhead(GrantMin-1, Place{1, 0}, call(99)), "too short")
	require.False(t, r.ExpectAhead(GrantMin, Place{2, 0}, call(99)), "no such window")
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// A sender that has sent one message waits for a grant, but not for long, and less often the more often it was in vain.
func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Geometry{Lanes: 1, Slots: 8, SlotBytes: GrantMin}
		const n = 4 * GrantMin
		a, b, mem := windowed(t, g, n)
		s, r := a.Peer(1).Sender(0).(*wireSender), b.Peer(0).Receiver(0).(*wireReceiver)
		waited := 0
		transfer := func(i int, granted bool) {
			c := Call{FP: uint64(i + 1)}
			x := sending{s: s, src: mem[0], at: Place{1, 0}, call: c}
			s.Begin(n)
			require.True(t, x.step(0))
			start := time.Now()
			for x.sent < n {
				if x.step(0) {
					continue
				}
				require.True(t, a.Hurried())
				if time.Sleep(10 * time.Microsecond); granted {
					r.Expect(mem[1], Place{1, 0}, &c)
					progress(t, a)
				}
			}
			require.LessOrEqual(t, time.Since(start), patience(n)+20*time.Microsecond)
			if time.Since(start) > 0 {
				waited++
			}
			for got := 0; got < n; {
				progress(t, b)
				k, _ := receive(t, r, mem[1], got, &c)
				got += k
			}
			progress(t, a)
		}
		transfer(0, true)
		require.Equal(t, 1, waited)
		for i := range 70 {
			transfer(1+i, false)
		}
		require.Equal(t, 1+6, waited, "the 1st, 3rd, 7th, 15th, 31st and 63rd time")
	})
}

// What no correct peer could have granted or placed is refused.
func TestGrantsAreChecked(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	const n = 2 * GrantMin
	grantOf := func(window, off, length uint64) *grant { return &grant{fp: 7, at: Place{window, off}, length: length} }
	for name, bad := range map[string]*grant{
		"no window": grantOf(0, 0, n), "another window": grantOf(2, 0, n), "a far window": grantOf(math.MaxUint64, 0, n), "nothing": grantOf(1, 0, 0),
		"beyond the end": grantOf(1, 1, 4*GrantMin), "from beyond the end": grantOf(1, 4*GrantMin+1, 1), "past all numbers": grantOf(1, math.MaxUint64, 2), "too long": grantOf(1, 8, math.MaxUint64),
	} {
		a, b, _ := windowed(t, g, 4*GrantMin)
		b.Peer(0).Receiver(0).(*wireReceiver).give(*bad)
		_, err := a.Progress()
		var c *Corrupt
		require.ErrorAs(t, err, &c, name)
		require.Equal(t, 1, c.Peer)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
	for name, bad := range map[string]struct {
		n       int
		fp      uint64
		granted bool
	}{"without a grant": {10, 7, false}, "of another call": {10, 8, true}, "longer than granted": {n + 1, 7, true}, "empty": {0, 7, true}} {
		a, b, mem := windowed(t, g, 4*GrantMin)
		r := b.Peer(0).Receiver(0).(*wireReceiver)
		if bad.granted {
			r.Expect(mem[1][:n], Place{1, 0}, &Call{FP: 7})
		}
		a.Peer(1).Sender(0).(*wireSender).publish(bad.n, placedK, lineBytes, &Call{FP: bad.fp})
		progress(t, b)
		_, err := r.Peek(&Call{FP: 7})
		var c *Corrupt
		require.ErrorAs(t, err, &c, name)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// A grant may come when this rank has sent the transfer by slots and freed its part of the window: that is of no use, and no harm.
func TestGrantOfAFreedWindow(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	const n = 2 * GrantMin
	a, b, mem := windowed(t, g, n)
	s, r := a.Peer(1).Sender(0).(*wireSender), b.Peer(0).Receiver(0).(*wireReceiver)
	for i := range 2 * grantLines {
		call := Call{FP: uint64(7 + i)}
		src := bytes.Repeat([]byte{byte(i + 1)}, n)
		x := sending{s: s, src: src, call: call}
		r.Expect(mem[1], Place{1, 0}, &call)
		s.Begin(n)
		for x.step(GrantMin) {
		}
		require.Equal(t, n, x.sent)
		a.Peer(1).DropWindow(1)
		for got := 0; got < n; {
			progress(t, a, b)
			k, placed := receive(t, r, mem[1], got, &call)
			require.False(t, placed)
			got += k
		}
		require.Equal(t, src, mem[1])
		require.False(t, b.Exposed())
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// However long a transfer is, its messages are not: each is a sign of life.
func TestLongTransfersShowSignsOfLife(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	const n = 2*placedMost + GrantMin
	a, b, mem := windowed(t, g, n)
	s, r := a.Peer(1).Sender(0).(*wireSender), b.Peer(0).Receiver(0).(*wireReceiver)
	call := Call{FP: 7}
	r.Expect(mem[1], Place{1, 0}, &call)
	progress(t, a)
	s.Begin(n)
	x := sending{s: s, src: mem[0], at: Place{1, 0}, call: call}
	mem[0][0], mem[0][placedMost], mem[0][n-1] = 1, 2, 3
	for x.step(0) {
	}
	require.Equal(t, n, x.sent)
	progress(t, b)
	require.Equal(t, uint64(3), b.Peer(0).wire.signs)
	for got := 0; got < n; {
		k, placed := receive(t, r, mem[1], got, &call)
		require.True(t, placed)
		require.LessOrEqual(t, k, placedMost)
		got += k
	}
	require.True(t, bytes.Equal(mem[0], mem[1]))
	require.False(t, b.Exposed())
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// Any bytes in a line of grants are a grant inside the peer's window, or refused.
func FuzzGrant(f *testing.F) {
	b := make([]byte, grantBytes)
	(&grant{first: 3, fp: 9, at: Place{1, 4096}, length: GrantMin}).encode(b)
	f.Add(b)
	a, other, _ := windowed(f, Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, 2*GrantMin)
	f.Cleanup(func() {
		_ = a.Close()
		_ = other.Close()
	})
	p := a.Peer(1)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < grantBytes {
			return
		}
		g, why := p.decodeGrant(b)
		if why != "" {
			return
		}
		n := p.shown[1].theirs.Len
		require.Equal(t, uint64(1), g.at.Window)
		require.True(t, g.length > 0 && g.at.Offset < n && g.length <= n-g.at.Offset)
		again := make([]byte, grantBytes)
		g.encode(again)
		back, why := p.decodeGrant(again)
		require.Empty(t, why)
		require.Equal(t, g, back)
	})
}

// No grant is given for what has landed already, polled or not, where memory shows it.
func TestNoGrantForWhatHasLanded(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	for name, tt := range map[string]struct {
		early   bool
		sent    int // of the transfer, before it is expected
		granted bool
	}{"all": {true, 2 * GrantMin, false}, "a part": {true, GrantMin, true}, "all, but memory may not show it": {false, 2 * GrantMin, true}} {
		a, b, mem := windowed(t, g, 4*GrantMin)
		r := b.Peer(0).Receiver(0).(*wireReceiver)
		r.wire.early = tt.early
		call := Call{FP: 7}
		for range tt.sent / GrantMin {
			require.True(t, put(a.Peer(1).Sender(0), make([]byte, GrantMin), &call))
		}
		r.Expect(mem[1][:2*GrantMin], Place{1, 0}, &call)
		require.Equal(t, tt.granted, b.Exposed(), name)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// unposting is an endpoint that takes no more writes.
type unposting struct{ rdma.Endpoint }

func (unposting) Post([]rdma.Write) (int, error) { return 0, rdma.ErrPeerLost }

// When posting fails, memory that was sent from stays exposed until the connection is broken.
func TestFailedPostIsWithdrawn(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	for _, lends := range []bool{false, true} {
		a, b, mem := windowed(t, g, 2*GrantMin)
		p := a.Peer(1)
		s := p.Sender(0).(*wireSender)
		x := sending{s: s, src: mem[0], call: Call{FP: 7}}
		if lends {
			x.at = Place{1, 0}
		}
		s.Begin(len(x.src))
		require.True(t, x.step(GrantMin))
		p.endpoint = unposting{p.endpoint}
		require.Nil(t, a.Torn())
		require.True(t, s.Put([]byte("one more"), &x.call))
		require.NotNil(t, p.Gone())
		require.Equal(t, lends, a.Exposed())
		require.Equal(t, lends, a.Torn() != nil)
		require.Equal(t, !lends, a.Drained())
		require.NoError(t, a.Withdraw())
		require.False(t, a.Exposed())
		require.Nil(t, a.Torn())
		require.True(t, a.Drained())
		require.Equal(t, lends, b.Peer(0).Gone() != nil, "the connection is broken")
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// After Withdraw nothing is written where it was granted.
func TestWithdrawEndsGrants(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: GrantMin}
	const n = 2 * GrantMin
	for _, withdrawn := range []bool{false, true} {
		a, b, mem := windowed(t, g, n)
		require.False(t, b.Exposed())
		b.Peer(0).Receiver(0).(*wireReceiver).Expect(mem[1], Place{1, 0}, &Call{FP: 7})
		require.True(t, b.Exposed())
		progress(t, a)
		if withdrawn {
			b.Release()
			require.NoError(t, b.Withdraw())
			b.Beat()
			require.Nil(t, b.Peer(0).Gone(), "who is withdrawn from is not lost")
		}
		copy(mem[0], bytes.Repeat([]byte{1}, n))
		s := a.Peer(1).Sender(0).(*wireSender)
		s.Begin(n)
		x := sending{s: s, src: mem[0], at: Place{1, 0}, call: Call{FP: 7}}
		require.True(t, x.step(0))
		require.Equal(t, n, x.sent)
		if withdrawn {
			require.Equal(t, make([]byte, n), mem[1])
		} else {
			require.Equal(t, mem[0], mem[1])
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

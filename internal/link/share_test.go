package link

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is shared arrives at every peer, in order with what each is sent alone, and stays as it was until the peer
// has taken it. A share without room waits for a peer that has not taken something, and says for which.
func TestShareIsAQueueToEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Geometry{Lanes: 2, Slots: 1 << rapid.IntRange(1, 4).Draw(t, "slots"), SlotBytes: 256, PoolLanes: 2, PoolBytes: 64 << rapid.IntRange(0, 11).Draw(t, "bytes")}
		m := connected(t, rapid.IntRange(3, 5).Draw(t, "ranks"), g, false)
		var peers []*Peer
		var receivers []*memReceiver
		for _, other := range m[1:] {
			peers = append(peers, m[0].Peer(other.rank))
			receivers = append(receivers, other.Peer(0).Receiver(1).(*memReceiver))
			defer other.Close()
		}
		defer m[0].Close()
		share := m[0].Share(1, peers)
		begin := rapid.SampledFrom([]uint32{0, math.MaxUint32 - uint32(g.headers())}).Draw(t, "begin") // every header has been used before numbers wrap
		for i, p := range peers {
			from(p.Sender(1).(*memSender), receivers[i], begin)
		}
		call := Call{FP: 7}
		queued := make([][][]byte, len(peers)) // what each has still to see
		shared := make([]int, len(peers))      // how many of them are shared
		next := byte(0)
		fill := func(b []byte) []byte {
			for i := range b {
				b[i] = next
			}
			next++
			return bytes.Clone(b)
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			i := rapid.IntRange(0, len(peers)-1).Draw(t, "peer")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				n := rapid.IntRange(1, 2*g.PoolBytes).Draw(t, "n")
				b, ok := share.Reserve(n)
				if !ok {
					most := 0
					share.Waiting(n, func(p *Peer) { most = max(most, shared[p.Rank-1]) })
					require.GreaterOrEqual(t, most, g.Usable(), "no room, but one that it waits for could be sent more")
					continue
				}
				require.Len(t, b, min(n, g.PoolBytes))
				sent := fill(b)
				share.Commit(&call)
				for i := range queued {
					queued[i] = append(queued[i], sent)
					shared[i]++
				}
			case 2:
				b, ok := peers[i].Sender(1).Reserve(100)
				if ok {
					queued[i] = append(queued[i], fill(b))
					peers[i].Sender(1).Commit(100, &call)
				}
			default:
				msg, err := receivers[i].Peek(&call)
				require.NoError(t, err)
				if len(queued[i]) == 0 {
					require.Nil(t, msg)
					continue
				}
				require.Equal(t, queued[i][0], msg.Data)
				if len(msg.Data) != 100 {
					shared[i]--
				}
				receivers[i].Advance(msg.Len)
				queued[i] = queued[i][1:]
			}
		}
	})
}

// Slots come into use when all that are in use are lent.
func TestShareTouchesNoMoreThanItNeeds(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 8, SlotBytes: 64, PoolLanes: 1, PoolBytes: 2 * shortSlot}
	m := connected(t, 3, g, false)
	share := m[0].Share(0, []*Peer{m[0].Peer(1), m[0].Peer(2)})
	call := Call{FP: 7}
	send := func() {
		_, ok := share.Reserve(g.PoolBytes)
		require.True(t, ok)
		share.Commit(&call)
	}
	take := func() {
		for _, m := range m[1:] {
			msg, err := m.Peer(0).Receiver(0).Peek(&call)
			require.NoError(t, err)
			m.Peer(0).Receiver(0).Advance(msg.Len)
		}
	}
	for range 20 {
		send()
		take()
	}
	require.Equal(t, longFirst, share.pool.long.used)
	for range g.Slots {
		send()
	}
	_, ok := share.Reserve(g.PoolBytes)
	require.False(t, ok)
	require.Equal(t, g.Slots, share.pool.long.used)
	for range g.Slots {
		take()
	}
	for _, m := range m {
		require.NoError(t, m.Close())
	}
}

// A slot is free when all have taken what it lends, though nothing more is sent to some of them.
func TestShareAfterOneToOthers(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 8, SlotBytes: 64, PoolLanes: 1, PoolBytes: 64}
	m := connected(t, 4, g, false)
	p := []*Peer{m[0].Peer(1), m[0].Peer(2), m[0].Peer(3)}
	call := Call{FP: 7}
	send := func(to ...*Peer) {
		share := m[0].Share(0, to)
		_, ok := share.Reserve(64)
		require.True(t, ok)
		share.Commit(&call)
		for _, p := range to {
			r := m[p.Rank].Peer(0).Receiver(0)
			msg, err := r.Peek(&call)
			require.NoError(t, err)
			r.Advance(msg.Len)
		}
	}
	send(p...)
	for range 3 * g.Slots {
		send(p[0], p[1])
	}
	for _, m := range m {
		require.NoError(t, m.Close())
	}
}

// Nothing is shared with one peer, on a lane without a pool, or where memory is not mapped.
func TestShareWhereItHelps(t *testing.T) {
	g := Geometry{Lanes: 2, Slots: 4, SlotBytes: 64, PoolLanes: 1, PoolBytes: 128}
	for _, tc := range []struct {
		name   string
		change func(*Geometry)
		noMap  bool
		lane   int
		peers  int
		want   bool
	}{
		{name: "shared", peers: 2, want: true},
		{name: "one peer", peers: 1},
		{name: "other lane", peers: 2, lane: 1},
		{name: "no pool", peers: 2, change: func(g *Geometry) { g.PoolLanes = 0 }},
		{name: "checksums", peers: 2, change: func(g *Geometry) { g.Checksum = true }},
		{name: "posted writes", peers: 2, noMap: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := g
			if tc.change != nil {
				tc.change(&g)
			}
			m := connected(t, 3, g, tc.noMap)
			peers := []*Peer{m[0].Peer(1), m[0].Peer(2)}[:tc.peers]
			require.Equal(t, tc.want, m[0].Share(tc.lane, peers) != nil)
			for _, m := range m {
				require.NoError(t, m.Close())
			}
		})
	}
}

// A pool that a peer cannot have is refused.
func TestPoolOutsideTheArena(t *testing.T) {
	g := Geometry{Lanes: 1, Slots: 4, SlotBytes: 64, PoolLanes: 1, PoolBytes: 128}
	p := &Peer{mesh: &Mesh{geo: g}}
	for _, at := range []uint64{1, 1 << 63, math.MaxUint64} {
		require.Error(t, p.connectPool(make([]byte, g.poolBytes()), at), "at %d", at)
	}
	require.NoError(t, p.connectPool(make([]byte, g.poolBytes()+64), 64))
	require.Len(t, p.window(poolWindow), g.poolBytes())
}

//go:build linux

package tcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// Nothing is allocated per message, once the buffers have their size.
func TestNoAllocation(t *testing.T) {
	for _, opts := range []Options{{}, {Checksum: true}, {Sockets: 2}} {
		a, b := newEnds(t, opts, 1<<20)
		ws := make([]rdma.Write, 1)
		exchange := func(n int) {
			ws[0] = rdma.Write{Local: a.mem.Bytes()[:n], Region: a.mem, Remote: b.mem.Remote(), HasImm: true, Signaled: true}
			for k := 0; k == 0; {
				var err error
				if k, err = a.ep.Post(ws); err != nil {
					t.Fatal(err)
				}
			}
			for left := 2; left > 0; {
				for _, x := range [...]*end{a, b} {
					k, err := x.cq.Poll(x.cs[:])
					if err != nil {
						t.Fatal(err)
					}
					left -= k
				}
			}
		}
		for _, n := range []int{0, 8, 5000, 64 << 10, 1 << 20} {
			exchange(n)
			assert.Zero(t, testing.AllocsPerRun(50, func() { exchange(n) }), "%d bytes, %+v", n, opts)
		}
	}
}

// A queue with many sockets finds a message on any of them, also one that has been quiet for long,
// and serves all when all have something.
func TestManySockets(t *testing.T) {
	const n = 20
	a, b := newEnds(t, Options{}, 4096)
	from, to := []*endpoint{a.ep}, []*endpoint{b.ep}
	for range n - 1 {
		x, y := a.endpoint(t), b.endpoint(t)
		join(t, x, y)
		from, to = append(from, x), append(to, y)
	}
	for round := range 3 * n {
		k := round * 7 % n
		_, err := from[k].Post([]rdma.Write{{HasImm: true, Imm: uint32(round)}})
		require.NoError(t, err)
		for got := 0; got == 0; {
			got, err = b.cq.Poll(b.cs[:])
			require.NoError(t, err)
			if got > 0 {
				require.Equal(t, rdma.Completion{Kind: rdma.Received, Endpoint: to[k].ID(), Imm: uint32(round)}, b.cs[0])
			}
		}
	}
	// One completion at a time, so that buffered frames have to be found again.
	for _, e := range from {
		for range 5 {
			_, err := e.Post([]rdma.Write{{HasImm: true}})
			require.NoError(t, err)
		}
	}
	got := map[uint32]int{}
	for left := 5 * n; left > 0; {
		k, err := b.cq.Poll(b.cs[:1])
		require.NoError(t, err)
		if left -= k; k > 0 {
			got[b.cs[0].Endpoint]++
		}
	}
	for _, e := range to {
		assert.Equal(t, 5, got[e.ID()])
	}
}

// What a fast sender may put under way is bounded by the receiver's polls, not by memory.
func TestBackPressure(t *testing.T) {
	a, b := newEnds(t, Options{MaxPosted: 8}, 1<<20)
	w := []rdma.Write{{Local: a.mem.Bytes(), Region: a.mem, Remote: b.mem.Remote(), HasImm: true}}
	taken := 0
	for quiet := 0; quiet < 100; {
		n, err := a.ep.Post(w)
		require.NoError(t, err)
		_, err = a.cq.Poll(a.cs[:])
		require.NoError(t, err)
		if taken += n; n > 0 {
			quiet = 0
		} else {
			quiet++
		}
		require.Less(t, taken, 200, "200 MiB were taken that nobody reads")
	}
	for left := taken; left > 0; {
		n, err := b.cq.Poll(b.cs[:])
		require.NoError(t, err)
		left -= n
		_, err = a.cq.Poll(a.cs[:])
		require.NoError(t, err)
	}
}

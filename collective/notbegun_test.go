package collective

import (
	"context"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// A call whose context ends before its turn comes ends at once, whichever way it is made, and leaves the
// communicator as it was.
func TestCallsThatHaveNotBegun(t *testing.T) {
	each(t, local(t, 2, Config{}), func(c *Comm) error {
		data := tensor.Of(make([]float32, 8))
		call := Call{Kind: AllReduce, Dst: data, Src: data, Op: tensor.Sum}
		prepared, err := c.Prepare(call)
		require.NoError(t, err)
		ways := map[string]func(context.Context) error{
			"call":     func(ctx context.Context) error { return c.AllReduce(ctx, data, data, tensor.Sum) },
			"group":    func(ctx context.Context) error { return c.Group(ctx, call) },
			"prepared": prepared.Run,
			"started": func(ctx context.Context) error {
				h := c.Start(ctx, call)
				<-h.Done()
				return h.Err()
			},
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for name, call := range ways {
			err := call(ended)
			require.ErrorIs(t, err, ErrNotBegun, name)
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, ErrInvalid, name)
		}
		delete(ways, "started") // which ends when its turn has come
		if c.rank == 0 {
			before := c.Start(context.Background(), call) // waits for rank 1, which waits for all below
			for name, call := range ways {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				require.ErrorIs(t, call(ctx), ErrNotBegun, name)
				cancel()
			}
			require.NoError(t, c.group.Barrier(context.Background()))
			<-before.Done()
			return before.Err()
		}
		require.NoError(t, c.group.Barrier(context.Background()))
		return c.AllReduce(context.Background(), data, data, tensor.Sum)
	})
}

// What fails while ranks meet is of this package's kinds.
func TestFailureToMeetIsOfAKind(t *testing.T) {
	groups := bootstrap.Local(2)
	require.NoError(t, groups[1].Close())
	_, err := New(t.Context(), Config{Group: groups[0]})
	require.ErrorIs(t, err, ErrPeerLost)
	require.ErrorIs(t, err, bootstrap.ErrPeerClosed)
	require.NoError(t, groups[0].Close())
}

// Ranks know their place on their host, however the hosts are mixed.
func TestPlaceOnHost(t *testing.T) {
	hosts := []string{"a", "b", "a", "a", "b"}
	for r, want := range [][2]int{{0, 3}, {0, 2}, {1, 3}, {2, 3}, {1, 2}} {
		c := &Comm{rank: r, size: len(hosts), peers: make([]hello, len(hosts))}
		for i, h := range hosts {
			c.peers[i].HostID = h
		}
		require.Equal(t, want, [2]int{c.LocalRank(), c.LocalSize()})
	}
}

// Where many ranks share a core they are waited for longer, unless somebody has said how long.
func TestHeartbeatOfManyRanks(t *testing.T) {
	for _, tc := range []struct {
		ranks, cores int
		set, want    time.Duration
	}{{16, 2, 0, 10 * time.Second}, {64, 2, 0, 40 * time.Second}, {64, 64, 0, 10 * time.Second}, {64, 2, 3 * time.Second, 3 * time.Second}, {64, 2, -1, -1}} {
		c := &Comm{cfg: Config{Heartbeat: tc.set}, peers: make([]hello, tc.ranks)}
		for r := range c.peers {
			c.peers[r].CPUs = cpu.Set{1<<(tc.cores-1) - 1 + 1<<(tc.cores-1)}
		}
		c.cfg.defaults()
		c.patient()
		require.Equal(t, tc.want, c.cfg.Heartbeat, "%+v", tc)
	}
}

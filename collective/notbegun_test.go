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

// Where many ranks share a core they are waited for longer, by all, unless somebody has said how long.
func TestHeartbeatOfManyRanks(t *testing.T) {
	core := cpu.Set{3}
	for _, tc := range []struct {
		hosts []int // ranks on each, of two cores
		set   time.Duration
		want  time.Duration
	}{
		{[]int{16}, 0, 10 * time.Second}, {[]int{64}, 0, 40 * time.Second}, {[]int{1, 128}, 0, 80 * time.Second},
		{[]int{64}, 3 * time.Second, 3 * time.Second}, {[]int{64}, -1, -1},
	} {
		c := &Comm{cfg: Config{Heartbeat: tc.set}}
		for host, n := range tc.hosts {
			for range n {
				c.peers = append(c.peers, hello{Kernel: string(rune('a' + host)), CPUs: core})
			}
		}
		c.cfg.defaults()
		c.cfg.defaults() // as for one made of another
		c.crowding = crowding(c.peers)
		require.Equal(t, tc.want, c.heartbeat(), "%+v", tc)
	}
}

// Who closes when a started call is done, or while somebody looks for failures, has no call in flight.
func TestCloseAfterTheLastCall(t *testing.T) {
	for round := range 20 {
		comms := local(t, 2, Config{noMap: true})
		each(t, comms, func(c *Comm) error {
			data := tensor.Of(make([]float32, 8))
			call := Call{Kind: AllReduce, Dst: data, Src: data, Op: tensor.Sum}
			looking, looked := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(looked)
				for {
					select {
					case <-looking:
						return
					default:
						c.Failed()
						c.Dump()
					}
				}
			}()
			var err error
			if round%2 == 0 {
				err = c.Group(context.Background(), call)
			} else {
				h := c.Start(context.Background(), call)
				<-h.Done()
				err = h.Err()
			}
			_ = c.Close()
			close(looking)
			<-looked
			if e := c.broken.Load(); e != nil && err == nil {
				err = e
			}
			return err
		})
	}
}

package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// kill ends a rank as the death of its process would: the kernel closes its sockets, nothing is said.
func kill(g Group) {
	gr := g.(*group)
	gr.mu.Lock()
	gr.ending = true
	links := slices.Clone(gr.links)
	gr.mu.Unlock()
	gr.end(ErrClosed)
	for _, l := range links {
		l.dropped.Store(true)
		l.conn.Net().Close()
	}
}

func TestDeathIsKnownToAll(t *testing.T) {
	for _, c := range []struct{ size, dead int }{{2, 0}, {2, 1}, {5, 3}, {5, 0}, {100, 0}, {100, 1}, {100, 99}} {
		t.Run(fmt.Sprintf("%d of %d", c.dead, c.size), func(t *testing.T) {
			groups, errs := connectAll(t, c.size, nil)
			for _, err := range errs {
				require.NoError(t, err)
			}
			defer closeGroups(groups)
			var waiting sync.WaitGroup
			waiting.Add(c.size - 1)
			go func() {
				waiting.Wait() // all others are, or are about to be, inside
				kill(groups[c.dead])
			}()
			each(groups, func(g Group) {
				if g.Rank() == c.dead {
					return
				}
				waiting.Done()
				_, err := g.AllGather(context.Background(), []byte("x"))
				var blamed *RankError
				if assert.ErrorAs(t, err, &blamed) {
					assert.Equal(t, c.dead, blamed.Rank, "%v", err)
					assert.ErrorIs(t, err, ErrPeerLost)
				}
				again := g.Barrier(context.Background())
				assert.ErrorIs(t, again, ErrPeerLost, "the first cause stays")
			})
		})
	}
}

func TestCloseIsKnownToThoseWhoNeedIt(t *testing.T) {
	for _, c := range []struct{ size, leaver int }{{2, 0}, {2, 1}, {5, 4}, {70, 0}, {70, 1}, {70, 69}} {
		t.Run(fmt.Sprintf("%d of %d", c.leaver, c.size), func(t *testing.T) {
			groups, errs := connectAll(t, c.size, nil)
			for _, err := range errs {
				require.NoError(t, err)
			}
			defer closeGroups(groups)
			each(groups, func(g Group) {
				_, err := g.AllGather(context.Background(), []byte("x"))
				assert.NoError(t, err)
				if g.Rank() == c.leaver {
					assert.NoError(t, g.Close())
					assert.ErrorIs(t, g.Barrier(context.Background()), ErrClosed)
					return
				}
				err = g.Barrier(context.Background())
				assert.ErrorIs(t, err, ErrPeerClosed)
				var blamed *RankError
				if assert.ErrorAs(t, err, &blamed) {
					assert.Equal(t, c.leaver, blamed.Rank, "%v", err)
				}
			})
		})
	}
}

// All ranks close as soon as they have their result; nobody may lose it by that.
func TestCloseRightAfterTheLastCollective(t *testing.T) {
	for range 5 {
		groups, errs := connectAll(t, 80, nil)
		for _, err := range errs {
			require.NoError(t, err)
		}
		each(groups, func(g Group) {
			all, err := g.AllGather(context.Background(), make([]byte, 1000))
			assert.NoError(t, err)
			assert.Len(t, all, 80)
			assert.NoError(t, g.Close())
			assert.NoError(t, g.Close())
		})
	}
}

func TestRanksDisagreeAboutTheOperation(t *testing.T) {
	groups, errs := connectAll(t, 3, nil)
	for _, err := range errs {
		require.NoError(t, err)
	}
	defer closeGroups(groups)
	each(groups, func(g Group) {
		var err error
		if g.Rank() == 2 {
			err = g.Barrier(context.Background())
		} else {
			_, err = g.AllGather(context.Background(), nil)
		}
		assert.ErrorIs(t, err, ErrMismatch)
		assert.ErrorContains(t, err, "barrier")
		assert.ErrorContains(t, err, "allgather")
		assert.ErrorContains(t, err, "rank 2")
	})
}

func TestContextEndsACollectiveOnAllRanks(t *testing.T) {
	for _, size := range []int{3, 70} {
		groups, errs := connectAll(t, size, nil)
		for _, err := range errs {
			require.NoError(t, err)
		}
		defer closeGroups(groups)
		ctx, cancel := context.WithCancelCause(context.Background())
		each(groups, func(g Group) {
			switch g.Rank() {
			case 1: // never comes
			case 2:
				cancel(fmt.Errorf("enough"))
				err := g.Barrier(ctx)
				assert.ErrorIs(t, err, ErrTimeout)
			default:
				err := g.Barrier(context.Background())
				assert.ErrorIs(t, err, ErrTimeout)
				assert.ErrorContains(t, err, "rank 2 gave up")
				assert.ErrorContains(t, err, "enough")
			}
		})
	}
}

func TestMissingRanksAreListed(t *testing.T) {
	l, addr := listen(t)
	const size = 8
	errs := make([]error, size)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for _, r := range []int{0, 1, 4, 7} {
		cfg := Config{Rank: r, Size: size, Root: addr, RunID: t.Name(), Secret: "s"}
		if r == 0 {
			cfg.Listener = l
		}
		all.Go(func() { _, errs[r] = Connect(ctx, cfg) })
	}
	all.Wait()
	for _, r := range []int{0, 1, 4, 7} {
		assert.ErrorIs(t, errs[r], ErrTimeout)
		assert.ErrorContains(t, errs[r], "ranks 2-3,5-6 (4 of them) had not registered", "rank %d", r)
	}
}

func TestNobodyAtTheRoot(t *testing.T) {
	l, addr := listen(t)
	l.Close()
	cfg := Config{Rank: 1, Size: 2, Root: addr, Secret: "s", Timeout: 50 * time.Millisecond}
	_, err := Connect(context.Background(), cfg)
	assert.ErrorIs(t, err, ErrTimeout)
	assert.ErrorContains(t, err, addr)
	assert.ErrorContains(t, err, "connection refused")
	assert.ErrorContains(t, err, "50ms have passed")
}

func TestRanksDisagreeAtRegistration(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		text   []string
	}{
		"duplicate": {
			func(c *Config) {
				if c.Rank == 3 {
					c.Rank = 2
				}
			},
			[]string{"rank 2", "two processes claim this rank"},
		},
		"size": {
			func(c *Config) {
				if c.Rank == 3 {
					c.Size = 5
				}
			},
			[]string{"rank 3", "for a group of 5 ranks", "for 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			groups, errs := connectAll(t, 4, c.change)
			closeGroups(groups)
			for r, err := range errs {
				assert.ErrorIs(t, err, ErrMismatch, "rank %d", r)
				for _, text := range c.text {
					assert.ErrorContains(t, err, text, "rank %d", r)
				}
			}
		})
	}
}

func TestWrongSecret(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l, addr := listen(t)
	cfg := Config{Size: 2, Root: addr, RunID: t.Name(), Secret: "s"}
	root := cfg
	root.Listener = l
	var all sync.WaitGroup
	all.Go(func() {
		_, err := Connect(ctx, root)
		assert.ErrorContains(t, err, "rank 1 had not registered")
	})
	cfg.Rank, cfg.Secret = 1, "other"
	_, err := Connect(ctx, cfg)
	assert.ErrorIs(t, err, ErrConfig)
	assert.ErrorContains(t, err, "GCCL_SECRET")
	cancel(errors.New("seen enough"))
	all.Wait()
}

// A rank that dies between its registration and the forming of the group.
func TestDeathWhileTheGroupForms(t *testing.T) {
	l, addr := listen(t)
	cfg := Config{Size: 4, Root: addr, RunID: t.Name(), Secret: "s"}
	var all sync.WaitGroup
	for r := range 2 {
		cfg := cfg
		cfg.Rank = r
		if r == 0 {
			cfg.Listener = l
		}
		all.Go(func() {
			_, err := Connect(context.Background(), cfg)
			var blamed *RankError
			if assert.ErrorAs(t, err, &blamed) {
				assert.Equal(t, 2, blamed.Rank, "%v", err)
				assert.ErrorIs(t, err, ErrPeerLost)
				assert.ErrorContains(t, err, "pid 77 on there")
				assert.Regexp(t, `rank 3|ranks 1,3`, err.Error()) // rank 1 may be on its way, too
			}
		})
	}
	dying := cfg
	dying.Rank = 2
	conn, err := reach(context.Background(), &dying, []meet.Target{{Host: "127.0.0.1", First: portOf(l), Last: portOf(l)}})
	require.NoError(t, err)
	id := wire.Identity{PID: 77, Host: "there"}
	require.NoError(t, conn.Send(wire.Frame{Type: wire.Introduce, Payload: id.Append(nil)}))
	conn.Net().Close()
	all.Wait()
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func TestTooLargeContributions(t *testing.T) {
	connected, errs := connectAll(t, 2, nil)
	for _, err := range errs {
		require.NoError(t, err)
	}
	for name, groups := range map[string][]Group{"local": Local(2), "tcp": connected} {
		t.Run(name, func(t *testing.T) {
			defer closeGroups(groups)
			each(groups, func(g Group) {
				var mine []byte
				if g.Rank() == 1 {
					mine = make([]byte, MaxPayload/2+1)
				}
				_, err := g.AllGather(context.Background(), mine)
				assert.ErrorIs(t, err, ErrTooLarge)
				assert.ErrorContains(t, err, "rank 1: ")
			})
		})
	}
}

func TestLargeContributions(t *testing.T) {
	groups, errs := connectAll(t, 3, nil)
	for _, err := range errs {
		require.NoError(t, err)
	}
	defer closeGroups(groups)
	each(groups, func(g Group) {
		mine := bytes.Repeat([]byte{byte(g.Rank() + 1)}, (g.Rank()+1)<<20)
		all, err := g.AllGather(context.Background(), mine)
		if assert.NoError(t, err) {
			for r, b := range all {
				assert.True(t, len(b) == (r+1)<<20 && bytes.Count(b, []byte{byte(r + 1)}) == len(b), "rank %d", r)
			}
		}
	})
}

// No rank tells others a loopback address, unless all are known to be on one host.
func TestPublishedAddresses(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer l.Close()
	for _, c := range []struct {
		cfg      Config
		loopback bool
	}{
		{Config{Size: 4, Root: "h:1"}, false},
		{Config{Size: 4, LocalSize: 2}, false},
		{Config{Size: 4, Root: "127.0.0.1:1,h:1"}, false},
		{Config{Size: 4, LocalSize: 4}, true},
		{Config{Size: 4, Root: "127.0.0.1:1"}, true},
		{Config{Size: 4, LocalSize: 2, AllowLoopback: true}, true},
	} {
		addrs, err := published(&c.cfg, []net.Listener{l}, netip.MustParseAddr("127.0.0.1"), c.cfg.oneHost())
		if !c.loopback && errors.Is(err, ErrConfig) {
			continue // this host has no other address, which is an error then
		}
		require.NoError(t, err)
		found := slices.ContainsFunc(addrs, func(a string) bool { return netip.MustParseAddrPort(a).Addr().IsLoopback() })
		assert.Equal(t, c.loopback, found, "%+v: %v", c.cfg, addrs)
		if c.loopback {
			assert.Equal(t, "127.0.0.1", netip.MustParseAddrPort(addrs[0]).Addr().String(), "the likeliest is first")
		}
	}
}

// What a peer said last is the reason, even if the connection refuses to send first.
func TestGoodbyeGoesBeforeABrokenPipe(t *testing.T) {
	groups, errs := connectAll(t, 2, nil)
	for _, err := range errs {
		require.NoError(t, err)
	}
	defer closeGroups(groups)
	require.NoError(t, groups[0].Close())
	parent := groups[1].(*group).parent
	<-parent.read // the goodbye has come
	parent.conn.Net().Close()
	err := groups[1].Barrier(context.Background())
	assert.ErrorIs(t, err, ErrPeerClosed)
	assert.ErrorContains(t, err, "rank 0")
}

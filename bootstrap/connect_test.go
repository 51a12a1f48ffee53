package bootstrap

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listen returns a bound socket on loopback and its address.
func listen(t testing.TB) (net.Listener, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l, l.Addr().String()
}

// connectAll connects size ranks of one job as goroutines. change, if not nil, alters a rank's
// configuration.
func connectAll(t testing.TB, size int, change func(*Config)) ([]Group, []error) {
	t.Helper()
	l, addr := listen(t)
	groups, errs := make([]Group, size), make([]error, size)
	var all sync.WaitGroup
	for r := range size {
		cfg := Config{Rank: r, Size: size, Root: addr, RunID: t.Name(), Secret: "s", Timeout: time.Minute}
		if r == 0 {
			cfg.Listener = l
		}
		if change != nil {
			change(&cfg)
		}
		all.Go(func() { groups[r], errs[r] = Connect(context.Background(), cfg) })
	}
	all.Wait()
	return groups, errs
}

// each runs f for all groups at once.
func each(groups []Group, f func(Group)) {
	var all sync.WaitGroup
	for _, g := range groups {
		all.Go(func() { f(g) })
	}
	all.Wait()
}

func closeGroups(groups []Group) {
	each(groups, func(g Group) {
		if g != nil {
			g.Close()
		}
	})
}

func TestConnectSizes(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8, 64, 65, 256} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			start := time.Now()
			groups, errs := connectAll(t, size, nil)
			defer closeGroups(groups)
			for _, err := range errs {
				require.NoError(t, err)
			}
			t.Log("connect", time.Since(start))
			for round := range 3 {
				errs := make([]error, size)
				each(groups, func(g Group) {
					mine := fmt.Appendf(nil, "%*d of round %d", g.Rank()%7, g.Rank(), round)
					all, err := g.AllGather(context.Background(), mine)
					if err != nil {
						errs[g.Rank()] = err
						return
					}
					for r, b := range all {
						if want := fmt.Sprintf("%*d of round %d", r%7, r, round); string(b) != want {
							errs[g.Rank()] = fmt.Errorf("from rank %d: got %q, want %q", r, b, want)
						}
					}
					if err := g.Barrier(context.Background()); err != nil {
						errs[g.Rank()] = err
					}
				})
				for _, err := range errs {
					require.NoError(t, err)
				}
			}
			t.Log("3 rounds", time.Since(start))
		})
	}
}

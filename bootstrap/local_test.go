package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLocal(t *testing.T) {
	for _, size := range []int{1, 2, 7} {
		groups := Local(size)
		each(groups, func(g Group) {
			assert.Equal(t, size, g.Size())
			for round := range 50 {
				mine := fmt.Appendf(nil, "%d.%d", g.Rank(), round)
				all, err := g.AllGather(context.Background(), mine)
				if !assert.NoError(t, err) {
					return
				}
				for r, b := range all {
					assert.Equal(t, fmt.Sprintf("%d.%d", r, round), string(b))
					clear(b) // it is this rank's own
				}
				clear(mine)
				assert.NoError(t, g.Barrier(context.Background()))
			}
			assert.NoError(t, g.Close())
			assert.NoError(t, g.Close())
			assert.ErrorIs(t, g.Barrier(context.Background()), ErrClosed)
		})
	}
}

func TestLocalFailures(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		bad  func(Group) error // what rank 2 of 4 does while the others enter a barrier
		want error
		text string
	}{
		"close":      {func(g Group) error { return g.Close() }, ErrPeerClosed, "rank 2: "},
		"other call": {func(g Group) error { g.AllGather(context.Background(), nil); return nil }, ErrMismatch, "rank "},
		"gives up": {func(g Group) error {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(enough)
			g.Barrier(ctx)
			return nil
		}, ErrTimeout, "enough"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				groups := Local(4)
				each(groups, func(g Group) {
					if g.Rank() == 2 {
						time.Sleep(time.Second) // until the others wait
						assert.NoError(t, c.bad(g))
						return
					}
					err := g.Barrier(context.Background())
					assert.ErrorIs(t, err, c.want)
					assert.ErrorContains(t, err, c.text)
					assert.ErrorIs(t, g.Barrier(context.Background()), c.want, "the first cause stays")
				})
			})
		})
	}
}

func TestLocalDeadlineNamesWhoIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := Local(5)
		each(groups, func(g Group) {
			if g.Rank() == 1 || g.Rank() == 3 {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(g.Rank()+1)*time.Second)
			defer cancel()
			err := g.Barrier(ctx)
			assert.ErrorIs(t, err, ErrTimeout)
			assert.ErrorContains(t, err, "rank 0 gave up waiting for ranks 1,3 (2 of them)")
		})
	})
}

func TestSplit(t *testing.T) {
	connected, errs := connectAll(t, 6, nil)
	for _, err := range errs {
		require.NoError(t, err)
	}
	for name, groups := range map[string][]Group{"local": Local(6), "tcp": connected} {
		t.Run(name, func(t *testing.T) {
			defer closeGroups(groups)
			ctx := context.Background()
			cfg := Config{Size: 6, LocalSize: 6, Secret: "s", RunID: "r"}
			each(groups, func(g Group) {
				for round := range 3 {
					// Rank 5 joins none; even and odd ranks part, in reverse order.
					color := g.Rank() % 2
					if g.Rank() == 5 {
						color = -1
					}
					part, err := Split(ctx, g, color, -g.Rank(), cfg)
					if !assert.NoError(t, err) {
						return
					}
					if color < 0 {
						assert.Nil(t, part)
						continue
					}
					all, err := part.AllGather(ctx, fmt.Appendf(nil, "%d of %d.%d", part.Rank(), g.Rank(), round))
					assert.NoError(t, err)
					want := [][]byte{fmt.Appendf(nil, "0 of 4.%d", round), fmt.Appendf(nil, "1 of 2.%d", round), fmt.Appendf(nil, "2 of 0.%d", round)}
					if color == 1 {
						want = [][]byte{fmt.Appendf(nil, "0 of 3.%d", round), fmt.Appendf(nil, "1 of 1.%d", round)}
					}
					assert.Equal(t, want, all)
					assert.NoError(t, part.Close())
				}
				assert.NoError(t, g.Barrier(ctx), "the old group still works")
			})
		})
	}
}

package collective

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func lazyComms(t *testing.T, n int, cfg Config) []*Comm {
	cfg.Lazy, cfg.Timeout = 1, time.Minute
	return local(t, n, cfg)
}

// joined are the ranks that a communicator has links to.
func joined(c *Comm) (ranks []int) {
	for r := range c.size {
		if c.mesh.Peer(r) != nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func together(comms []*Comm, f func(c *Comm)) {
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() { f(c) })
	}
	wg.Wait()
}

// Links are made for the calls that want them, and for no others; preparing and explaining makes none.
func TestLazyLinks(t *testing.T) {
	comms := lazyComms(t, 6, Config{})
	for _, c := range comms {
		require.Empty(t, joined(c))
		_, err := c.Plan(Call{Kind: AllToAll, Dst: tensor.Of(make([]byte, 6)), Src: tensor.Of(make([]byte, 6))})
		require.NoError(t, err)
		_, err = c.Prepare(Call{Kind: Send, Src: tensor.Of([]byte{1}), Peer: (c.rank + 1) % 6})
		require.NoError(t, err)
		require.Empty(t, joined(c))
	}
	ctx := t.Context()
	together(comms, func(c *Comm) {
		var x [3]byte
		switch c.rank { // 3 sends to 1, and 1 and 5 to each other
		case 1:
			assert.NoError(t, c.Recv(ctx, tensor.Of(x[:1]), 3))
			assert.NoError(t, c.SendRecv(ctx, tensor.Of([]byte{15}), 5, tensor.Of(x[1:2]), 5))
			assert.Equal(t, [3]byte{31, 51}, x)
		case 3:
			assert.NoError(t, c.Send(ctx, tensor.Of([]byte{31}), 1))
		case 5:
			assert.NoError(t, c.SendRecv(ctx, tensor.Of([]byte{51}), 1, tensor.Of(x[:1]), 1))
			assert.Equal(t, byte(15), x[0])
		}
	})
	for r, want := range [][]int{nil, {3, 5}, nil, {1}, nil, {1}} {
		require.Equal(t, want, joined(comms[r]), "rank %d", r)
	}
	together(comms, func(c *Comm) {
		w, err := c.Alloc(ctx, tensor.Uint8, 1000)
		if !assert.NoError(t, err) {
			return
		}
		x := w.Bytes()
		for i := range x {
			x[i] = byte(c.rank + i)
		}
		assert.NoError(t, c.AllReduce(ctx, w, w, tensor.Sum))
		assert.Equal(t, byte((15+6*(999%256))%256), x[999])
		all := make([]int64, 6)
		assert.NoError(t, c.AllToAll(ctx, tensor.Of(all), tensor.Of([]int64{0, 1, 2, 3, 4, 5})))
		assert.Len(t, joined(c), 5)
		child, err := c.Split(ctx, c.rank%2, 0)
		if assert.NoError(t, err) {
			assert.NoError(t, child.Barrier(ctx))
			assert.NoError(t, child.Close())
		}
	})
}

// A rank that is wanted and has closed, or gives up, is named; nobody waits for long.
func TestLazyLinksToNobody(t *testing.T) {
	comms := lazyComms(t, 4, Config{})
	require.NoError(t, comms[2].Close())
	start := time.Now()
	together(comms, func(c *Comm) {
		if c.rank == 2 {
			return
		}
		x := []int64{1}
		err := c.AllReduce(t.Context(), tensor.Of(x), tensor.Of(x), tensor.Sum)
		assert.ErrorIs(t, err, ErrPeerLost, "rank %d", c.rank)
		assert.ErrorContains(t, err, "rank 2", "rank %d", c.rank)
	})
	require.Less(t, time.Since(start), 30*time.Second)
}

// A rank whose links are all there is told who failed by a neighbour that was still making others.
func TestLazyLinksToAFailure(t *testing.T) {
	comms := lazyComms(t, 4, Config{Algo: "allreduce:ring.AllReduce"})
	var calls sync.WaitGroup
	for _, r := range []int{0, 1, 3} {
		calls.Go(func() {
			x := []int64{1, 2, 3, 4}
			err := comms[r].AllReduce(t.Context(), tensor.Of(x), tensor.Of(x), tensor.Sum)
			assert.ErrorIs(t, err, ErrGaveUp, "rank %d", r)
			assert.ErrorContains(t, err, "rank 2", "rank %d", r)
		})
	}
	for len(joined(comms[0])) < 2 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	comms[2].Abort("enough")
	calls.Wait()
}

// A failure that a rank is told at a meeting reaches those that it has links to.
func TestLazyLinksPassAFailureOn(t *testing.T) {
	comms := lazyComms(t, 3, Config{})
	var x [1]byte
	together(comms[:2], func(c *Comm) {
		if c.rank == 0 {
			assert.NoError(t, c.Send(t.Context(), tensor.Of([]byte{1}), 1))
		} else {
			assert.NoError(t, c.Recv(t.Context(), tensor.Of(x[:]), 0))
		}
	})
	comms[2].Abort("enough")
	together(comms[:2], func(c *Comm) { // 0 waits for 1, which wants 2
		err := c.Recv(t.Context(), tensor.Of(make([]byte, 1)), c.rank+1)
		assert.ErrorIs(t, err, ErrGaveUp, "rank %d", c.rank)
		assert.ErrorContains(t, err, "rank 2", "rank %d", c.rank)
	})
}

// A rank that still waits for one learns of the failure of another that it has met.
func TestLazyLinksWatchWhomTheyHaveMet(t *testing.T) {
	comms := lazyComms(t, 3, Config{Algo: "allreduce:ring.AllReduce"})
	var calls sync.WaitGroup
	for r := range 2 { // 2 does not come
		calls.Go(func() {
			x := []int64{1, 2, 3}
			err := comms[r].AllReduce(t.Context(), tensor.Of(x), tensor.Of(x), tensor.Sum)
			assert.ErrorIs(t, err, ErrGaveUp, "rank %d", r)
			assert.ErrorContains(t, err, "rank 1", "rank %d", r)
		})
	}
	time.Sleep(50 * time.Millisecond) // mostly, 0 and 1 have met by then
	comms[1].Abort("enough")
	calls.Wait()
}

func TestLazyLinksGivenUp(t *testing.T) {
	comms := lazyComms(t, 3, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	x := []int64{1}
	err := comms[0].AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "it has not come")
	var e *StepError
	require.ErrorAs(t, err, &e)

	done := make(chan error, 1) // an Abort reaches a call that makes links
	go func() { done <- comms[1].AllReduce(t.Context(), tensor.Of(x), tensor.Of(x), tensor.Sum) }()
	time.Sleep(20 * time.Millisecond) // mostly, it waits by then
	comms[1].Abort("enough")
	require.True(t, errors.Is(<-done, ErrGaveUp))
}

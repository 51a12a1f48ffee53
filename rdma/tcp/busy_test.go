//go:build linux

package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// A queue does not go to sleep while an endpoint could send more, whatever sockets of others are full.
func TestBusyBesideAFullSocket(t *testing.T) {
	const size = 3 << 20
	a, b := newEnds(t, Options{}, size)
	c := newEnd(t, Options{}, size)
	ep := a.endpoint(t)
	join(t, ep, c.ep)
	q := a.cq.(*queue)
	src := touched(size)
	for q.blocked.Load() == 0 {
		_, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), HasImm: true}})
		require.NoError(t, err)
	}
	busy := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.busyLocked()
	}
	for busy() { // with what has been sent
		_, err := q.Poll(a.cs[:])
		require.NoError(t, err)
	}
	ep.tx.wants.Store(true) // as after pumpBudget
	require.True(t, busy())
}

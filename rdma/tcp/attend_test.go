//go:build linux

package tcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// What the user attends to is found by the next Poll, and what comes elsewhere meanwhile not much later.
func TestAttend(t *testing.T) {
	const n = 6
	a, b := newEnds(t, Options{}, 4096)
	from, to := []*endpoint{a.ep}, []*endpoint{b.ep}
	for range n - 1 {
		x, y := a.endpoint(t), b.endpoint(t)
		join(t, x, y)
		from, to = append(from, x), append(to, y)
	}
	q := b.cq.(*queue)
	attend := func(es ...*endpoint) {
		for _, e := range es {
			q.Attend(e)
			q.Attend(e) // twice is once
		}
	}
	poll := func() []uint32 {
		var ids []uint32
		k, err := q.Poll(b.cs[:])
		require.NoError(t, err)
		for _, c := range b.cs[:k] {
			ids = append(ids, c.Endpoint)
		}
		return ids
	}
	send := func(e *endpoint) {
		_, err := e.Post([]rdma.Write{{HasImm: true}})
		require.NoError(t, err)
	}
	for range 2 * epollEvery {
		for _, others := range [][]*endpoint{nil, {to[0]}, {to[0], to[1]}, {to[0], to[1], to[2]}} {
			send(from[n-1])
			attend(append(others, to[n-1])...)
			assert.Equal(t, []uint32{to[n-1].ID()}, poll(), "attended with %d others", len(others))
			assert.Empty(t, q.attended)
		}
	}
	for range 3 {
		send(from[n-1])
		polls := 0
		for found := 0; found == 0; polls++ {
			attend(to[0])
			found = len(poll())
		}
		assert.LessOrEqual(t, polls, epollEvery)
	}
	// Neither a closed endpoint nor another queue's does harm.
	require.NoError(t, to[0].Close())
	attend(to[0], from[1])
	send(from[1])
	for found := 0; found == 0; {
		found = len(poll())
	}
}

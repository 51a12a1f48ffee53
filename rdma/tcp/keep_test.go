//go:build linux

package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// What is posted and not sent yet is sent as it was when Keep was called.
func TestKeep(t *testing.T) {
	const size, writes = 3 << 20, 8
	for _, opts := range []Options{{}, {Sockets: 2}} {
		a, b := newEnds(t, opts, size*writes)
		src := touched(size)
		for i := range writes { // more than sockets hold
			k, err := a.ep.Post([]rdma.Write{{Local: src, Remote: b.mem.Remote(), Offset: uint64(i * size), HasImm: true}})
			require.NoError(t, err)
			require.Equal(t, 1, k)
		}
		require.True(t, a.ep.tx.wants.Load(), "nothing waits")
		a.ep.Keep()
		clear(src)
		receive(t, a, b, writes)
		require.Equal(t, -1, bytes.IndexByte(b.mem.Bytes(), 0))
	}
}

//go:build unix

package rdmatest

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// A peer that is stopped blocks nothing here: writes go on until the queue is full, and Close
// returns. When it goes on, it hears of the loss.
func testStopped(t *testing.T, open Opener) {
	s, c := withChild(t, open, rdma.EndpointOptions{})
	c.do(t, order{Do: "nothing"})
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	w := s.to(c, 64<<10)
	for range 4 * s.dev.Attr().MaxPosted {
		n, err := s.ep.Post([]rdma.Write{w})
		require.NoError(t, err)
		_, err = s.poll()
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	require.NoError(t, s.ep.Close())
	require.NoError(t, s.dev.Close())
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
	c.do(t, order{Do: "lost"})
	assert.Empty(t, s.lost.all())
}

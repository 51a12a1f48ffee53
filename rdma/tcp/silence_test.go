//go:build linux

package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

// cutOff has the kernel drop every packet that comes for the endpoint, acknowledgements and probes
// included: what its peer sees of a host without power or network.
func cutOff(t *testing.T, e *endpoint) {
	t.Helper()
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	for _, l := range e.lanes {
		muffle(t, l)
	}
}

// muffle does it to one lane.
func muffle(t *testing.T, l *lane) {
	t.Helper()
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	l.withTCP(func(fd int) {
		require.NoError(t, unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(drop)), Filter: &drop[0]}))
	})
}

// A host that falls silent is found by a process that polls nothing, whether something was under way
// or not.
func TestSilentHost(t *testing.T) {
	for name, opts := range map[string]Options{"plain": {}, "tls": {Encrypt: true}} {
		opts.DeadAfter = minDeadAfter
		for _, busy := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				a, b, lostA, _ := newWatchedEnds(t, opts, 4096)
				cutOff(t, b.ep)
				if !busy { // nor does b's own end get through
					cutOff(t, a.ep)
				}
				if busy {
					_, err := a.ep.Post([]rdma.Write{{HasImm: true}})
					require.NoError(t, err)
				}
				select {
				case err := <-lostA:
					assert.ErrorIs(t, err, rdma.ErrPeerLost)
					assert.ErrorIs(t, err, unix.ETIMEDOUT)
					assert.ErrorContains(t, err, a.ep.label)
				case <-time.After(20 * time.Second):
					require.FailNow(t, "the silence was not noticed")
				}
				_, err := a.ep.Post([]rdma.Write{{}})
				assert.ErrorIs(t, err, rdma.ErrPeerLost)
			})
		}
	}
}

// A peer that lives but does not poll is not taken for dead, however long its window is closed.
func TestBusyPeerIsAlive(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	a, b, lostA, lostB := newWatchedEnds(t, Options{DeadAfter: minDeadAfter}, size)
	n, err := a.ep.Post([]rdma.Write{{Local: a.mem.Bytes(), Region: a.mem, Remote: b.mem.Remote(), HasImm: true, Signaled: true}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	fill(t, a)
	select {
	case err := <-lostA:
		require.NoError(t, err)
	case err := <-lostB:
		require.NoError(t, err)
	case <-time.After(2 * minDeadAfter):
	}
	done := make(chan error, 1)
	go func() { done <- b.awaitReceived(1) }()
	for received := false; !received; {
		_, err := a.cq.Poll(a.cs[:])
		require.NoError(t, err)
		select {
		case err := <-done:
			require.NoError(t, err)
			received = true
		default:
		}
	}
}

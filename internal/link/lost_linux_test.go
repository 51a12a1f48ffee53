package link

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/shm"
	"github.com/gccl/gccl/rdma/tcp"
	"github.com/stretchr/testify/require"
)

// A provider may tell of a lost peer at any moment, also while the mesh is closed and after: the
// memory of the boards is not touched then.
func TestLostWhileClosing(t *testing.T) {
	for range 50 {
		a, b := sharedPair(t, Config{Geometry: Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}})
		var wg sync.WaitGroup
		var ended atomic.Bool
		began := make(chan struct{})
		wg.Go(func() {
			close(began)
			for !ended.Load() {
				a.Peer(1).gone.Store(nil) // as if it were the first time
				a.lost(a.Peer(1), rdma.ErrPeerLost)
			}
		})
		<-began
		require.NoError(t, a.Close())
		ended.Store(true)
		wg.Wait()
		require.NoError(t, b.Close())
	}
}

// A run that failed has given its caller's memory back: what its peer receives later is what was sent.
func TestReleaseOfWhatIsSent(t *testing.T) {
	const size = 1 << 20
	for _, gone := range []bool{false, true} {
		a, b := pairOver(t, Config{Geometry: Geometry{Lanes: 1, Slots: 16, SlotBytes: size}}, func() (rdma.Device, error) { return tcp.Open(tcp.Options{}) })
		require.True(t, a.Peer(1).Direct())
		src, call := bytes.Repeat([]byte{1}, size), Call{FP: 7}
		s, r := a.Peer(1).Sender(0).(DirectSender), b.Peer(0).Receiver(0)
		for range 16 { // more than sockets hold
			_, ok := s.Reserve(size)
			require.True(t, ok)
			s.CommitFrom(src, &call)
		}
		require.False(t, a.Drained())
		if gone { // silent, that is: it may go on
			a.Peer(1).gone.Store(&Notice{Cause: CauseLost})
			require.True(t, a.Drained())
		} else {
			a.Release()
		}
		clear(src)
		for n := 0; n < 16; {
			progress(t, a, b)
			m, err := r.Peek(&call)
			require.NoError(t, err)
			if m != nil {
				require.Equal(t, size, m.Len)
				require.Equal(t, -1, bytes.IndexByte(m.Data, 0), "message %d", n)
				r.Advance(m.Len)
				n++
			}
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// sharedPair connects two ranks over memory that is unmapped at the end.
func sharedPair(t *testing.T, cfg Config) (a, b *Mesh) {
	return pairOver(t, cfg, func() (rdma.Device, error) { return shm.New(shm.Options{}) })
}

// pairOver connects two ranks, each over a device of its own.
func pairOver(t *testing.T, cfg Config, open func() (rdma.Device, error)) (a, b *Mesh) {
	m := meshes(t, 2, cfg, func() rdma.Device {
		dev, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Close() })
		return dev
	})
	t.Cleanup(func() { // before the devices
		_, _ = m[0].Close(), m[1].Close()
	})
	return m[0], m[1]
}

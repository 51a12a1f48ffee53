package bootstrap

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// A rank that gives up while another takes nothing, whose sockets are full, is not kept for longer than lastWord.
func TestFarewellIsBounded(t *testing.T) {
	l, addr := listen(t)
	cfg := Config{Size: 2, Root: addr, RunID: t.Name(), Secret: "s"}
	root := cfg
	root.Listener = l
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var (
		all   sync.WaitGroup
		err   error
		ended time.Time
	)
	all.Go(func() {
		var g Group
		if g, err = Connect(context.Background(), root); err == nil {
			_, err = g.AllGather(ctx, make([]byte, 16<<20))
			_ = g.Close()
		}
		ended = time.Now()
	})
	cfg.Rank = 1
	conn, e := reach(t.Context(), &cfg, []meet.Target{{Host: "127.0.0.1", First: portOf(l), Last: portOf(l)}})
	require.NoError(t, e)
	defer conn.Net().Close()
	up := func(op wire.Op, seq uint64) {
		mine := wire.Table{First: 1, Data: make([][]byte, 1)}
		require.NoError(t, conn.Send(wire.Frame{Type: wire.Up, Op: op, Seq: seq}, mine.Parts()...))
	}
	receive := func(want wire.Type) {
		f, err := conn.Receive()
		require.NoError(t, err)
		require.Equal(t, want, f.Type)
	}
	id := wire.Identity{PID: 77, Host: "there"}
	require.NoError(t, conn.Send(wire.Frame{Type: wire.Introduce, Payload: id.Append(nil)}))
	receive(wire.Assign)
	up(wire.Barrier, 0)
	receive(wire.Down)
	up(wire.AllGather, 1)
	_, e = conn.Net().Read(make([]byte, 1)) // of what is more than the sockets hold
	require.NoError(t, e)
	began := time.Now()
	cancel(errors.New("enough"))
	all.Wait()
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorContains(t, err, "enough")
	require.Less(t, ended.Sub(began), 6*time.Second, "the bound is 2 s")
}

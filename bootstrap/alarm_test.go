package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// A rank that was started for another job hears so soon, with what differs; those who wait for it hear who
// was refused.
func TestRankOfAnotherJob(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*Config)
		own, other []string
	}{
		"run id": {
			func(c *Config) { c.RunID = "elsewhere" },
			[]string{"serves another job", `run id "elsewhere"`, digestText(wire.DigestRun("elsewhere")), "GCCL_RUN_ID", "GCCL_ROOT"},
			[]string{"refused", "run id differs", digestText(wire.DigestRun("elsewhere")) + ", not "},
		},
		"no run id": {
			func(c *Config) { c.RunID = "" },
			[]string{"serves another job", `run id ""`},
			[]string{"it has none"},
		},
		"earlier epoch": {
			func(c *Config) { c.Epoch = 3 },
			[]string{"serves epoch 4 of this job", "epoch 3"},
			[]string{"it belongs to epoch 3 of this job, not 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, addr := listen(t)
			waiting, enough := context.WithCancelCause(context.Background())
			defer enough(nil)
			errs := make([]error, 3)
			var all sync.WaitGroup
			for r := range errs {
				cfg := Config{Rank: r, Size: len(errs), Root: addr, RunID: t.Name(), Epoch: 4, Timeout: 3 * time.Minute}
				ctx := waiting
				switch r {
				case 0:
					cfg.Listener = l
				case 2:
					c.change(&cfg)
					ctx = context.Background()
				}
				all.Go(func() {
					if _, errs[r] = Connect(ctx, cfg); r == 2 {
						enough(errors.New("seen enough"))
					}
				})
			}
			all.Wait()
			assert.ErrorIs(t, errs[2], ErrMismatch)
			for _, text := range c.own {
				assert.ErrorContains(t, errs[2], text)
			}
			for r := range 2 {
				for _, text := range append(c.other, "rank 2 had not registered", "rank 2 of 3", fmt.Sprintf("pid %d at 127.0.0.1", os.Getpid())) {
					assert.ErrorContains(t, errs[r], text, "rank %d", r)
				}
			}
		})
	}
}

// A root that waits says for whom, and who came that it does not know, long before its deadline.
func TestRootSaysWhomItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(pipes)
		core, logs := observer.New(zap.WarnLevel)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, err := Connect(ctx, Config{Size: 4, RunID: "run", Secret: "s", Listener: conns, Alarm: zap.New(core)})
			assert.ErrorIs(t, err, context.Canceled)
		}()
		call := func(runID string, rank uint32) (*wire.Pending, error) {
			near, far := net.Pipe()
			conns <- far
			b := meet.NewBadge("s", runID, 0)
			return wire.Greet(near, b.Key, wire.Hello{Purpose: wire.Register, Run: b.Run, Rank: rank, Size: 4, PID: 4711})
		}
		_, err := call("other", 3)
		assert.ErrorAs(t, err, new(*wire.Refused))
		pending, err := call("run", 1)
		require.NoError(t, err)
		conn, err := pending.Prove()
		require.NoError(t, err)
		id := wire.Identity{PID: 4712, Host: "h"}
		require.NoError(t, conn.Send(wire.Frame{Type: wire.Introduce, Payload: id.Append(nil)}))
		time.Sleep(firstAlarm - time.Nanosecond)
		synctest.Wait()
		assert.Zero(t, logs.Len())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 1, logs.Len())
		for _, text := range []string{`run id "run"`, "waits for ranks 2-3", "of 4", "rank 3 of 4 (pid 4711 at pipe)", "run id differs"} {
			assert.Contains(t, logs.All()[0].Message, text)
		}
		time.Sleep(10 * firstAlarm)
		assert.Equal(t, 4, logs.Len(), "after 5, 10, 20 and 40 s")
		cancel()
		go conn.Receive() // the fault
		<-ended
		conn.Net().Close()
	})
}

// pipes is a listener for connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	defer func() { recover() }() // it may be closed twice
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// While a root waits for its port, which an earlier run holds, the others do not give up either.
func TestEarlierRunIsWaitedFor(t *testing.T) {
	t.Parallel()
	l, addr := listen(t)
	earlier, end := context.WithTimeout(context.Background(), 3500*time.Millisecond)
	defer end()
	var all sync.WaitGroup
	all.Go(func() {
		_, err := Connect(earlier, Config{Size: 2, Root: addr, RunID: "earlier", Listener: l})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
	groups, errs := make([]Group, 2), make([]error, 2)
	for r := range groups {
		all.Go(func() {
			groups[r], errs[r] = Connect(t.Context(), Config{Rank: r, Size: 2, Root: addr, RunID: "run", Timeout: 20 * time.Second})
		})
	}
	all.Wait()
	for r, g := range groups {
		if assert.NoError(t, errs[r]) {
			assert.NoError(t, g.Close())
		}
	}
}

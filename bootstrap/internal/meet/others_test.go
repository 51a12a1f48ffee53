package meet

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// house serves at one address, whose owners may change.
type house struct{ door chan *pipeListener }

func (h *house) let(b Badge) *Door {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	d := Open(b, wire.Register, 0, zap.NewNop(), []net.Listener{l})
	select {
	case <-h.door:
	default:
	}
	h.door <- l
	return d
}

func (h *house) dial(context.Context, string) (net.Conn, error) {
	l := <-h.door
	h.door <- l
	return l.dial(), nil
}

// A caller that only others answer hears so at once if its epoch is over, and soon if another job is there.
func TestOthersAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		owner   Badge
		decided bool
		most    time.Duration
		text    string
	}{
		{"another job", NewBadge("secret", "other", 1), true, 2 * otherPatience, "serves another job"},
		{"an earlier epoch", NewBadge("secret", "run", 0), true, 2 * otherPatience, "serves epoch 0 of this job"},
		{"a later epoch", NewBadge("secret", "run", 2), true, time.Second / 2, "serves epoch 2 of this job"},
		{"not there yet", NewBadge("secret", "other", 1), false, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &house{door: make(chan *pipeListener, 1)}
				d := h.let(c.owner)
				defer d.Close()
				core, logs := observer.New(zap.WarnLevel)
				call := Caller{Badge: job, Hello: helloOf(job), Targets: []Target{{"10.0.0.1", 7, 7}}, What: "rank 0",
					Decided: c.decided, Dial: h.dial, Log: zap.New(core)}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				start := time.Now()
				_, err := call.Call(ctx)
				if !c.decided {
					assert.ErrorIs(t, err, ErrTimeout)
					assert.Equal(t, 3, logs.Len(), "after 10 s, 10 s and 20 s more, and not 40 s")
					assert.Contains(t, logs.All()[0].Message, "serves another job")
					return
				}
				assert.ErrorIs(t, err, ErrOther)
				assert.ErrorContains(t, err, c.text)
				assert.LessOrEqual(t, time.Since(start), c.most)
				assert.Equal(t, c.most > firstWord, logs.Len() == 1)
				require.Len(t, d.Strangers(), 1)
				s := d.Strangers()[0]
				assert.Equal(t, uint32(1), s.Hello.Rank)
				assert.NotZero(t, s.Hello.PID)
				assert.Greater(t, s.Times, 1)
			})
		})
	}
}

// Another server at one of the places says nothing of the others, and one that is about to end nothing of
// what follows.
func TestOthersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{door: make(chan *pipeListener, 1)}
		old := h.let(NewBadge("secret", "run", 0))
		time.AfterFunc(otherPatience-time.Second/2, func() {
			go h.let(job)
			old.Close()
		})
		call := Caller{Badge: job, Hello: helloOf(job), Targets: []Target{{"10.0.0.1", 7, 7}}, What: "rank 0", Decided: true, Dial: h.dial}
		conn, err := call.Call(t.Context())
		require.NoError(t, err)
		conn.Net().Close()
		synctest.Wait()
		l := <-h.door
		l.Close()
	})
}

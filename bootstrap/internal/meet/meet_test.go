package meet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var job = NewBadge("secret", "run", 1)

func helloOf(b Badge) wire.Hello {
	return wire.Hello{Purpose: wire.Register, Run: b.Run, Epoch: b.Epoch, Rank: 1, Size: 2}
}

// openAt opens a door for job on loopback.
func openAt(t testing.TB, log *zap.Logger) (*Door, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return Open(job, wire.Register, 0, log, []net.Listener{l}), l.Addr().String()
}

// enter goes through a door as a rank does.
func enter(ctx context.Context, addr string, b Badge) (*wire.Conn, error) {
	targets, err := ParseTargets(addr)
	if err != nil {
		return nil, err
	}
	c := Caller{Badge: b, Hello: helloOf(b), Targets: targets, What: "rank 0"}
	conn, err := c.Call(ctx)
	if err != nil {
		return nil, err
	}
	id := wire.Identity{PID: 1, Host: "h"}
	return conn, conn.Send(wire.Frame{Type: wire.Introduce, Payload: id.Append(nil)})
}

// noises are what strangers do to a port. Each returns when the door has hung up, or at once if it
// is silent.
var noises = map[string]func(t *testing.T, nc net.Conn){
	"port scan":     func(t *testing.T, nc net.Conn) { nc.Close() },
	"three bytes":   func(t *testing.T, nc net.Conn) { say(nc, []byte("GET")); nc.Close() },
	"HTTP":          func(t *testing.T, nc net.Conn) { say(nc, []byte("GET / HTTP/1.1\r\n\r\n")); hungUp(t, nc) },
	"random 64 KiB": func(t *testing.T, nc net.Conn) { b := make([]byte, 64<<10); rand.Read(b); say(nc, b); hungUp(t, nc) },
	"old job": func(t *testing.T, nc net.Conn) {
		_, err := wire.Greet(nc, job.Key, helloOf(NewBadge("secret", "run", 0)))
		assert.Equal(t, &wire.Refused{Code: wire.OtherEpoch, Epoch: 1}, err)
	},
	"other job": func(t *testing.T, nc net.Conn) {
		_, err := wire.Greet(nc, job.Key, helloOf(NewBadge("secret", "other", 1)))
		assert.Equal(t, &wire.Refused{Code: wire.OtherRun}, err)
	},
	"other rank": func(t *testing.T, nc net.Conn) {
		h := helloOf(job)
		h.Target = 5
		_, err := wire.Greet(nc, job.Key, h)
		assert.Equal(t, &wire.Refused{Code: wire.OtherTarget}, err)
	},
	"other version": func(t *testing.T, nc net.Conn) {
		h := helloOf(job)
		b := h.Append(nil)
		b[4] = 9
		say(nc, b)
		answer, _ := io.ReadAll(nc)
		assert.Equal(t, []byte("GCCL\x01\x03\x00\x01"), answer)
	},
	"wrong secret": func(t *testing.T, nc net.Conn) {
		h := helloOf(job)
		say(nc, h.Append(nil))
		say(nc, append([]byte("GCCL\x01\x04\x00\x00"), make([]byte, 32)...))
		hungUp(t, nc)
	},
	"no introduction": func(t *testing.T, nc net.Conn) {
		p, err := wire.Greet(nc, job.Key, helloOf(job))
		if assert.NoError(t, err) {
			conn, err := p.Prove()
			assert.NoError(t, err)
			assert.NoError(t, conn.Send(wire.Frame{Type: wire.Bye}))
			hungUp(t, nc)
		}
	},
}

func say(nc net.Conn, b []byte) { nc.Write(b) }

// hungUp waits until the other side has closed nc.
func hungUp(t *testing.T, nc net.Conn) {
	_, err := io.Copy(io.Discard, nc)
	assert.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the door holds the connection")
}

func TestStrangersAreTurnedAway(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	d, addr := openAt(t, zap.New(core))
	for name, noise := range noises {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(20 * time.Second))
			noise(t, nc)
		})
	}
	d.Close()
	assert.NotZero(t, logs.FilterMessage("dropped a connection").Len(), "it is logged")
	assert.LessOrEqual(t, logs.Len(), loudStrangers+1, "and not too often")
}

// More silent connections than the door tolerates, and constant noise, hold up no rank.
func TestRanksEnterThroughNoise(t *testing.T) {
	before := countFDs(t)
	d, addr := openAt(t, zap.NewNop())
	var silent []net.Conn
	for range maxStrangers + 20 {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		silent = append(silent, nc)
	}
	stop := make(chan struct{})
	var noisy sync.WaitGroup
	crowd := []func(*testing.T, net.Conn){noises["three bytes"], noises["random 64 KiB"], noises["port scan"],
		func(t *testing.T, nc net.Conn) { // an old job is refused, or goes with the oldest
			_, err := wire.Greet(nc, job.Key, helloOf(NewBadge("secret", "run", 0)))
			assert.Error(t, err)
		}}
	for _, noise := range crowd {
		noisy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if nc, err := net.Dial("tcp", addr); err == nil {
					noise(t, nc)
					nc.Close()
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 50 {
		conn, err := enter(ctx, addr, job)
		require.NoError(t, err)
		a := <-d.Arrivals
		assert.Equal(t, uint32(1), a.Hello.Rank)
		assert.Equal(t, "h", a.ID.Host)
		a.Conn.Net().Close()
		conn.Net().Close()
	}
	close(stop)
	noisy.Wait()
	// The oldest had to go, long before its time was over.
	silent[0].SetReadDeadline(time.Now().Add(helloTimeout / 2))
	hungUp(t, silent[0])
	d.Close()
	for _, nc := range silent {
		hungUp(t, nc)
		nc.Close()
	}
	assert.Equal(t, before, countFDs(t))
}

// A silent connection is dropped when its time is over.
func TestSilenceIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		d := Open(job, wire.Register, 0, zap.NewNop(), []net.Listener{l})
		start := time.Now()
		silent := l.dial()
		_, err := silent.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		assert.Equal(t, helloTimeout, time.Since(start))

		// One that says hello and then nothing more gets no further time than a handshake.
		slow := l.dial()
		start = time.Now()
		_, err = wire.Greet(slow, job.Key, helloOf(job))
		require.NoError(t, err)
		_, err = slow.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		assert.Equal(t, handshakeTimeout, time.Since(start))
		d.Close()
	})
}

func TestCloseDropsAnArrivalThatNobodyTook(t *testing.T) {
	d, addr := openAt(t, zap.NewNop())
	conn, err := enter(context.Background(), addr, job)
	require.NoError(t, err)
	d.Close()
	_, err = conn.Receive()
	assert.Error(t, err)
	conn.Net().Close()
}

// The right server is found among names that do not resolve yet, ports where nobody listens, another
// job's server and a stranger who says nothing.
func TestCallerFindsTheServer(t *testing.T) {
	right, addr := openAt(t, zap.NewNop())
	defer right.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	other := Open(NewBadge("secret", "other", 1), wire.Register, 0, zap.NewNop(), []net.Listener{l})
	defer other.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer mute.Close()

	tries := 0
	targets, err := ParseTargets(fmt.Sprintf("127.0.0.1:1,%s,%s,late:%d", l.Addr(), mute.Addr(), portOf(addr)))
	require.NoError(t, err)
	c := Caller{
		Badge: job, Hello: helloOf(job), Targets: targets, What: "rank 0",
		Resolve: func(ctx context.Context, host string) ([]string, error) {
			if tries++; tries < 4 {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return []string{"::1", "127.0.0.1"}, nil
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := c.Call(ctx)
	require.NoError(t, err)
	assert.Equal(t, addr, conn.Net().RemoteAddr().String())
	conn.Net().Close()
}

func TestCallerSaysWhatBecameOfEachAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets, err := ParseTargets("10.0.0.1:7,10.0.0.2:7,10.0.0.3:7,nowhere:7,here:7")
		require.NoError(t, err)
		c := Caller{
			Badge: job, Hello: helloOf(job), Targets: targets, What: "rank 0", Remote: true,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				switch addr {
				case "10.0.0.1:7":
					return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
				case "10.0.0.2:7":
					return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
				}
				<-ctx.Done()
				return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
			},
			Resolve: func(ctx context.Context, host string) ([]string, error) {
				if host == "here" {
					return []string{"127.0.1.1"}, nil
				}
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			},
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = c.Call(ctx)
		assert.ErrorIs(t, err, ErrTimeout)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		for _, text := range []string{
			"10.0.0.1:7: ", "connection refused (nobody listens there", "10.0.0.2:7: ", "no route to host (choose another interface",
			"10.0.0.3:7: ", "does a firewall drop this port?", "nowhere: ", "no such host", "here: ", "means 127.0.1.1 here",
		} {
			assert.ErrorContains(t, err, text)
		}
		assert.NotContains(t, err.Error(), "127.0.1.1:7", "no loopback address is tried")
	})
}

func TestWrongSecretIsNotRetriedForEver(t *testing.T) {
	d, addr := openAt(t, zap.NewNop())
	defer d.Close()
	_, err := enter(context.Background(), addr, Badge{wire.DeriveKey("other", "run", 1), job.Run, job.Epoch})
	assert.ErrorIs(t, err, ErrConfig)
	assert.ErrorContains(t, err, "GCCL_SECRET")
}

func TestParseTargets(t *testing.T) {
	got, err := ParseTargets("h:1, [::1]:2-4,10.0.0.1:65535")
	require.NoError(t, err)
	assert.Equal(t, []Target{{"h", 1, 1}, {"::1", 2, 4}, {"10.0.0.1", 65535, 65535}}, got)
	for _, text := range []string{"", "h", "h:", ":1", "h:0", "h:65536", "h:5-4", "h:x", "h:1,", "::1:5", "h:1-2000"} {
		_, err := ParseTargets(text)
		assert.ErrorIs(t, err, ErrConfig, "%q", text)
	}
	assert.True(t, Target{Host: "localhost"}.IsLoopback())
	assert.True(t, Target{Host: "127.0.1.1"}.IsLoopback())
	assert.False(t, Target{Host: "localhost.example"}.IsLoopback())
}

// countFDs returns how many file descriptors this process has open.
func countFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(entries)
}

func portOf(addr string) int {
	a, _ := net.ResolveTCPAddr("tcp", addr)
	return a.Port
}

// pipeListener accepts connections in memory, which synctest's clock governs.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) dial() net.Conn {
	a, b := net.Pipe()
	l.conns <- b
	return a
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

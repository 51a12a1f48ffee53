package etcd

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/bootstrap/store"
	"github.com/gccl/gccl/bootstrap/store/storetest"
)

// server starts an etcd for one test and returns its address.
func server(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("etcd is not installed")
	}
	client, peer := freeAddr(t), freeAddr(t)
	cmd := exec.Command(path, "--name", "test", "--data-dir", t.TempDir(), "--log-level", "error",
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "test=http://"+peer)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return client
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestStore(t *testing.T) {
	addr := server(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, o := range []Options{{}, {TTL: time.Minute}} {
		t.Run(fmt.Sprint(o.TTL), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store {
				s, err := Open(ctx, "etcd://"+addr+"/a/b", o)
				require.NoError(t, err)
				return s
			})
		})
	}

	t.Run("a value expires", func(t *testing.T) {
		s, err := Open(ctx, "etcd://"+addr, Options{TTL: time.Second})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Set(ctx, "k", []byte("v")))
		for s.CompareAndSet(ctx, "k", nil, []byte("again")) != nil {
			require.NoError(t, ctx.Err())
		}
	})

	t.Run("ranks meet", func(t *testing.T) {
		s, err := Open(ctx, "etcd://"+addr+"/jobs", Options{TTL: time.Minute})
		require.NoError(t, err)
		defer s.Close()
		var all sync.WaitGroup
		for r := range 3 {
			all.Go(func() {
				g, err := bootstrap.Connect(ctx, bootstrap.Config{Rank: r, Size: 3, LocalSize: 3, RunID: "job", Secret: "s", Store: s})
				if assert.NoError(t, err) {
					assert.NoError(t, g.Barrier(ctx))
					assert.NoError(t, g.Close())
				}
			})
		}
		all.Wait()
	})
}

func TestNobodyAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, "etcd://"+freeAddr(t), Options{})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestURLs(t *testing.T) {
	endpoints, prefix, secure, err := parseURL("etcds://a:1,[::1]:2/x/y")
	require.NoError(t, err)
	assert.Equal(t, []string{"https://a:1", "https://[::1]:2"}, endpoints)
	assert.Equal(t, "x/y", prefix)
	assert.True(t, secure)
	for _, u := range []string{"", "etcd://", "etcd://a", "http://a:1", "etcd://a:1,", "etcd://u@a:1"} {
		_, _, _, err := parseURL(u)
		assert.Error(t, err, "%q", u)
	}
	_, err = New(nil, "../x", 0)
	assert.Error(t, err)
}

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, secret string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := Serve(l, secret, nil)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

func TestServerAsksForItsSecret(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := Dial(ctx, serve(t, "s"), "wrong")
	assert.ErrorContains(t, err, "secret")
}

func TestServerThatGoes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := Serve(l, "s", nil)
	c, err := Dial(context.Background(), l.Addr().String(), "s")
	require.NoError(t, err)
	defer c.Close()
	errs := make(chan error)
	go func() {
		_, err := c.Get(context.Background(), "never")
		errs <- err
	}()
	s.Close()
	assert.ErrorIs(t, <-errs, ErrLost)
	assert.ErrorIs(t, c.Set(context.Background(), "k", nil), ErrLost)
}

// A client whose Gets all wait must not keep the others from being served, nor more than its share.
func TestServerBoundsWhatItKeeps(t *testing.T) {
	m := NewMemory()
	m.limit = 2
	ctx := context.Background()
	require.NoError(t, m.Set(ctx, "a", nil))
	require.NoError(t, m.Set(ctx, "b", nil))
	assert.Error(t, m.Set(ctx, "c", nil))
	assert.NoError(t, m.Set(ctx, "a", []byte("again")))
}

func TestFileStoresOfTwoProcessesExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	const writers, rounds = 4, 25
	for range writers {
		s, err := NewFile(dir) // each with lock files of its own, as processes have
		require.NoError(t, err)
		all.Go(func() {
			for range rounds {
				assert.NoError(t, increment(s))
			}
		})
	}
	all.Wait()
	s, err := NewFile(dir)
	require.NoError(t, err)
	v, err := s.Get(context.Background(), "n")
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint(writers*rounds), string(v))
}

// increment adds one to the number under key n.
func increment(s Store) error {
	ctx := context.Background()
	for {
		err := s.CompareAndSet(ctx, "n", nil, []byte("0"))
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		old, err := s.Get(ctx, "n")
		if err != nil {
			return err
		}
		var n int
		fmt.Sscan(string(old), &n)
		if err := s.CompareAndSet(ctx, "n", old, fmt.Append(nil, n+1)); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func TestFileRefusesWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	s, err := NewFile(dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "=k"), make([]byte, MaxValue+1), 0o600))
	_, err = s.Get(context.Background(), "k")
	assert.ErrorContains(t, err, "more than")
}

func TestOpenRefuses(t *testing.T) {
	for _, u := range []string{"", "file:", "file://host/dir", "tcp://", "tcp://h:1/x", "tcp://h", "etcd://h:1", "%"} {
		_, err := Open(context.Background(), u, "")
		assert.Error(t, err, "%q", u)
	}
	_, err := Open(context.Background(), "etcd://h:1", "")
	assert.ErrorContains(t, err, "Config.Store")
}

func FuzzMessages(f *testing.F) {
	f.Add(request{verb: verbCompareAndSet, key: "k", old: []byte("o"), value: []byte("v")}.append(nil))
	f.Add(request{verb: verbSet, key: "k", value: []byte("v")}.append(nil))
	f.Add(reply{statusConflict, []byte("text")}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil && string(r.append(nil)) != string(b) {
			t.Errorf("request %x", b)
		}
		if r, err := parseReply(b); err == nil && string(r.append(nil)) != string(b) {
			t.Errorf("reply %x", b)
		}
		if key := string(b); CheckKey(key) == nil && (strings.Contains(key, "..") && strings.Contains(key, "../") || key[0] == '/') {
			t.Errorf("key %q leads out of a directory", key)
		}
	})
}

// Package storetest checks that a store keeps the contract of store.Store.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/bootstrap/store"
)

// Run runs all checks. open returns a client of the same store each time, as processes have.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := func(t *testing.T) store.Store {
		s := open(t)
		t.Cleanup(func() {
			assert.NoError(t, s.Delete(context.Background(), "t/"))
			assert.NoError(t, s.Close())
		})
		return s
	}
	t.Run("values", func(t *testing.T) { values(ctx, t, client(t), client(t)) })
	t.Run("waiting", func(t *testing.T) { waiting(ctx, t, client(t), client(t)) })
	t.Run("compare and set", func(t *testing.T) { compareAndSet(ctx, t, client(t)) })
	t.Run("one winner", func(t *testing.T) { oneWinner(ctx, t, client) })
	t.Run("delete", func(t *testing.T) { deletes(ctx, t, client(t)) })
	t.Run("refusals", func(t *testing.T) { refusals(ctx, t, client(t)) })
}

func values(ctx context.Context, t *testing.T, a, b store.Store) {
	for _, v := range []string{"x", "", "two words\n", strings.Repeat("\x00\xff", store.MaxValue/2)} {
		require.NoError(t, a.Set(ctx, "t/k", []byte(v)))
		got, err := b.Get(ctx, "t/k")
		require.NoError(t, err)
		assert.Equal(t, v, string(got))
	}
	long := "t/" + strings.Repeat("k", 120) + strings.Repeat("/"+strings.Repeat("n", 30), 12)
	for i, key := range []string{"t/k/below", "t/k.x", "t/K", long[:min(len(long), store.MaxKey)]} {
		require.NoError(t, a.Set(ctx, key, []byte{byte(i)}), key)
	}
	for i, key := range []string{"t/k/below", "t/k.x", "t/K", long[:min(len(long), store.MaxKey)]} {
		got, err := b.Get(ctx, key)
		require.NoError(t, err)
		assert.Equal(t, []byte{byte(i)}, got)
	}
}

func waiting(ctx context.Context, t *testing.T, a, b store.Store) {
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := a.Get(short, "t/never")
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "t/never")

	const readers = 8
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			v, err := a.Get(ctx, "t/later")
			assert.NoError(t, err)
			assert.Equal(t, "now", string(v))
		})
	}
	assert.NoError(t, b.Set(ctx, "t/later", []byte("now")))
	all.Wait()
}

func compareAndSet(ctx context.Context, t *testing.T, s store.Store) {
	key := "t/c"
	conflict := func(err error) { assert.ErrorIs(t, err, store.ErrConflict) }
	conflict(s.CompareAndSet(ctx, key, []byte("x"), []byte("y")))
	conflict(s.CompareAndSet(ctx, key, []byte{}, []byte("y")))
	require.NoError(t, s.CompareAndSet(ctx, key, nil, []byte{}))
	conflict(s.CompareAndSet(ctx, key, nil, []byte("y")))
	require.NoError(t, s.CompareAndSet(ctx, key, []byte{}, []byte("y")))
	conflict(s.CompareAndSet(ctx, key, []byte("x"), []byte("z")))
	require.NoError(t, s.CompareAndSet(ctx, key, []byte("y"), []byte("z")))
	v, err := s.Get(ctx, key)
	require.NoError(t, err)
	assert.Equal(t, "z", string(v))
}

func oneWinner(ctx context.Context, t *testing.T, client func(*testing.T) store.Store) {
	var all sync.WaitGroup
	var mu sync.Mutex
	winners := 0
	for i := range 8 {
		s := client(t)
		all.Go(func() {
			if s.CompareAndSet(ctx, "t/w", nil, fmt.Append(nil, i)) == nil {
				mu.Lock()
				winners++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	assert.Equal(t, 1, winners)
}

func deletes(ctx context.Context, t *testing.T, s store.Store) {
	for _, key := range []string{"t/d/1", "t/d/2/x", "t/d2", "t/e"} {
		require.NoError(t, s.Set(ctx, key, []byte("v")))
	}
	require.NoError(t, s.Delete(ctx, "t/d/"))
	require.NoError(t, s.Delete(ctx, "t/nothing"))
	there := func(key string) bool {
		// A value can be put only where there is none.
		err := s.CompareAndSet(ctx, key, nil, []byte("probe"))
		return err != nil
	}
	assert.False(t, there("t/d/1"))
	assert.False(t, there("t/d/2/x"))
	assert.True(t, there("t/d2"))
	assert.True(t, there("t/e"))
	require.NoError(t, s.Delete(ctx, "t/d"))
	assert.False(t, there("t/d2"), "a prefix may end inside a name")
}

func refusals(ctx context.Context, t *testing.T, s store.Store) {
	for _, key := range []string{"", "/", "/t", "t/", "t//x", "t/../x", "..", ".", "t/.", "t x", "t\n", "t=x", "t\x00", "ü", strings.Repeat("k", store.MaxKey+1)} {
		assert.Error(t, s.Set(ctx, key, nil), "%q", key)
		_, err := s.Get(ctx, key)
		assert.Error(t, err, "%q", key)
		assert.False(t, errors.Is(err, context.DeadlineExceeded), "%q", key)
		assert.Error(t, s.CompareAndSet(ctx, key, nil, nil), "%q", key)
	}
	assert.Error(t, s.Set(ctx, "t/k", make([]byte, store.MaxValue+1)))
	assert.Error(t, s.Delete(ctx, ""), "not everything by accident")
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Get(done, "t/never")
	assert.ErrorIs(t, err, context.Canceled)
}

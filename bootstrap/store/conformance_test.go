package store_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/bootstrap/store"
	"github.com/gccl/gccl/bootstrap/store/storetest"
)

func TestMemory(t *testing.T) {
	m := store.NewMemory()
	storetest.Run(t, func(t *testing.T) store.Store { return m })
}

func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := store.Open(context.Background(), "file://"+dir, "")
		require.NoError(t, err)
		return s
	})
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "+lock")}, left, "deleted keys leave no files or directories")
}

func TestServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := store.Serve(l, "s", nil)
	defer server.Close()
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := store.Open(context.Background(), "tcp://"+l.Addr().String(), "s")
		require.NoError(t, err)
		return s
	})
}

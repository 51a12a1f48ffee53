package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewer(t *testing.T) {
	src, bin := filepath.Join(t.TempDir(), "x.c"), filepath.Join(t.TempDir(), "x")
	assert.False(t, newer(bin, src))
	require.NoError(t, os.WriteFile(bin, nil, 0o600))
	assert.False(t, newer(bin, src), "there is no source")
	require.NoError(t, os.WriteFile(src, nil, 0o600))
	now := time.Now()
	require.NoError(t, os.Chtimes(src, now, now))
	require.NoError(t, os.Chtimes(bin, now, now.Add(time.Second)))
	assert.True(t, newer(bin, src))
	require.NoError(t, os.Chtimes(bin, now, now.Add(-time.Second)))
	assert.False(t, newer(bin, src))
}

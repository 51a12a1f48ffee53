//go:build unix

package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

func TestFileDescriptorsAreReserved(t *testing.T) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	low := old
	low.Cur = 100
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	require.NoError(t, ReserveFiles(200, zap.NewNop()))
	var now unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &now))
	assert.Equal(t, old.Max, now.Cur, "the soft limit is raised")

	low.Cur = 40
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	require.NoError(t, ReserveFiles(7, zap.NewNop()))
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &now))
	assert.Equal(t, old.Max, now.Cur, "a few are counted, too, where the limit is low")

	err := ReserveFiles(int(old.Max), zap.NewNop())
	assert.ErrorIs(t, err, ErrConfig)
	assert.ErrorContains(t, err, "ulimit -n")
}

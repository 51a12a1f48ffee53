package verbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
)

func TestOptions(t *testing.T) {
	o, err := Options{}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, uint8(17), o.Timeout)
	assert.Equal(t, uint8(6), o.RetryCount)
	assert.Equal(t, 537*time.Millisecond, ackTimeout(o.Timeout))
	for _, bad := range []Options{
		{RetryCount: 7}, // for ever on soft-RoCE
		{RNRRetry: 8}, {Timeout: 32}, {MinRNRTimer: 32}, {ServiceLevel: 16}, {RoCEVersion: 3}, {AddrFamily: 5},
		{SendDepth: 1}, {Inline: 1 << 20},
	} {
		_, err := bad.withDefaults()
		assert.Error(t, err, "%+v", bad)
		_, err = Open(bad)
		assert.Error(t, err)
		assert.NotErrorIs(t, err, rdma.ErrUnavailable, "a wrong option is not a missing device")
	}
}

func TestMemlockError(t *testing.T) {
	err := memlockError(unix.ENOMEM, 64<<10, 1<<20)
	assert.ErrorIs(t, err, rdma.ErrUnavailable)
	assert.ErrorIs(t, err, unix.ENOMEM)
	assert.ErrorContains(t, err, "memlock limit is 64 KiB, this needs 1024 KiB more: raise it with ulimit -l, or LimitMEMLOCK")
	assert.Equal(t, unix.ENOMEM, memlockError(unix.ENOMEM, unix.RLIM_INFINITY, 1), "no limit: not the cause")
}

// The patience with a peer follows Timeout, by both clocks.
func TestPatience(t *testing.T) {
	for timeout, want := range map[uint8]time.Duration{1: time.Second, 15: time.Second, 16: 1250 * time.Millisecond, 17: 2500 * time.Millisecond, 20: 20 * time.Second, 31: 40960 * time.Second} {
		o, err := Options{Timeout: timeout}.withDefaults()
		require.NoError(t, err)
		require.Equal(t, want, o.probeLimit(), "timeout %d", timeout)
		require.Equal(t, max(1, timeout-1), controlTimers(&o).timeout)
	}
}

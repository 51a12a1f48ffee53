package collective

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/stretchr/testify/require"
)

func env(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := pairs[name]
		return v, ok
	}
}

// Numbers out of range are refused with the variable, the value and the range.
func TestNumbersOutOfRange(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"GCCL_BUFFSIZE", "1", "from 128 to 1073741824"},
		{"GCCL_BUFFSIZE", "2G", "from 128 to 1073741824"},
		{"GCCL_NCHANNELS", "-3", "from 1 to 63"},
		{"GCCL_NCHANNELS", "64", "from 1 to 63"},
		{"GCCL_SLOTS", "0", "a power of two from 2 to 4096"},
		{"GCCL_SLOTS", "12", "a power of two from 2 to 4096"},
		{"GCCL_SLOTS", "8K", "a power of two from 2 to 4096"},
		{"GCCL_LEND_MIN", "0", "from 1 to"},
		{"GCCL_IB_QPS", "17", "from 1 to 16"},
		{"GCCL_TCP_SOCKETS", "17", "from 1 to 16"},
		{"GCCL_IB_TIMEOUT", "32", "from 1 to 31"},
		{"GCCL_IB_GID_INDEX", "256", "want auto or 0 to 255"},
		{"GCCL_IB_TC", "256", "from 0 to 255"},
		{"GCCL_IB_SL", "16", "from 0 to 15"},
		{"GCCL_IB_PKEY", "65536", "from 0 to 65535"},
		{"GCCL_SPIN", "-1", "0 or more"},
		{"GCCL_TIMEOUT", "-1s", "want a duration like 90s"},
		{"GCCL_TIMEOUT", "abc", "want a duration like 90s"},
		{"GCCL_HEARTBEAT", "-3", "a number of seconds, 0 or off"},
		{"GCCL_CHECKSUM", "maybe", "want 0 or 1"},
		{"GCCL_LAZY", "2", "want 0, 1 or auto"},
	} {
		_, err := ConfigFromEnv(env(map[string]string{tc.name: tc.value}))
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("%s=%q", tc.name, tc.value))
		require.ErrorContains(t, err, tc.want)
		require.NotContains(t, err.Error(), "\n", "said once")
	}
	for i := range limits {
		l := &limits[i]
		for _, v := range []int{l.lo - 1, l.hi + 1} {
			if v == 0 {
				continue
			}
			var cfg Config
			*l.at(&cfg) = v
			_, err := NewLocal(t.Context(), 2, cfg)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, l.name)
			require.ErrorContains(t, err, fmt.Sprint(v))
			require.ErrorContains(t, err, fmt.Sprintf("from %d to %d", l.lo, l.hi))
		}
	}
	_, err := NewLocal(t.Context(), 2, Config{BufferBytes: 128, Slots: 8})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "GCCL_BUFFSIZE is 128: 8 slots")
	cfg, err := ConfigFromEnv(env(map[string]string{"GCCL_SPIN": "0"}))
	require.NoError(t, err)
	require.Negative(t, cfg.Spin)
}

// A rank whose environment is refused tells the others, who would else wait for it.
func TestRefusedEnvironmentTellsTheOthers(t *testing.T) {
	cfg, err := ConfigFromEnv(env(map[string]string{"GCCL_SLOTS": "3", "GCCL_RANK": "1", "GCCL_SIZE": "2", "GCCL_ROOT": "127.0.0.1:1"}))
	require.ErrorContains(t, err, `GCCL_SLOTS="3"`)
	require.Equal(t, 1, cfg.Bootstrap.Rank)
	require.Equal(t, 2, cfg.Bootstrap.Size)
	late, lateErr := ConfigFromEnv(env(map[string]string{"GCCL_TIMEOUT": "-3", "GCCL_RANK": "1", "GCCL_SIZE": "2", "GCCL_ROOT": "127.0.0.1:1"}))
	require.ErrorIs(t, lateErr, ErrInvalid)
	require.Equal(t, 1, late.Bootstrap.Rank, "which bootstrap says, though it reads GCCL_TIMEOUT, too")
	network := loopback.NewNetwork()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for r, group := range bootstrap.Local(2) {
		rc := Config{Group: group, network: network, yield: func() {}}
		if r == 1 {
			rc.refused = err
		}
		wg.Go(func() { _, errs[r] = New(context.Background(), rc) })
	}
	wg.Wait()
	require.ErrorIs(t, errs[0], ErrGaveUp)
	require.ErrorContains(t, errs[0], "rank 1")
	require.ErrorContains(t, errs[0], `GCCL_SLOTS="3"`)
	require.ErrorIs(t, errs[1], ErrInvalid)
}

// Variables that nothing reads are told of in one line, with what was meant if that can be guessed.
func TestUnknownVariables(t *testing.T) {
	require.Equal(t, []string{"GCCL_SLTOS is not a setting; did you mean GCCL_SLOTS?", "GCCL_ZEBRA_CROSSING is not a setting"},
		Unknown([]string{"HOME=/", "GCCL_SLOTS=8", "GCCL_SLTOS=8", "GCCL_ZEBRA_CROSSING=1", "GCCL_RANK=0", "GCCL_TEST_X=1"}))
	if os.Getenv("GCCL_TEST_UNKNOWN") != "" {
		_, err := ConfigFromEnv(os.LookupEnv)
		require.NoError(t, err)
		return
	}
	for level, lines := range map[string]int{"": 1, "warn": 1, "silent": 0} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestUnknownVariables$")
		cmd.Env = append(os.Environ(), "GCCL_TEST_UNKNOWN=1", "GCCL_SLTOS=8", "GCCL_TIMEOTU=1", "GCCL_DEBUG="+level)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Run())
		require.Equal(t, lines, strings.Count(stderr.String(), "\n"), "%q: %s", level, &stderr)
		if lines > 0 {
			require.Contains(t, stderr.String(), "did you mean GCCL_SLOTS?; GCCL_TIMEOTU is not a setting; did you mean GCCL_TIMEOUT?")
		}
	}
}

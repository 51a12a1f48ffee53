package collective

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// All values that are refused are named, and the others are still told.
func TestEveryWrongSettingIsNamed(t *testing.T) {
	env := map[string]string{"GCCL_STRICT": "maybe", "GCCL_SLOTS": "many", "GCCL_LAZY": "1"}
	values, err := Values(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `GCCL_STRICT="maybe"`)
	require.ErrorContains(t, err, `GCCL_SLOTS="many"`)
	require.Len(t, values, len(Settings()))
	for _, v := range values {
		if v.Name == "GCCL_LAZY" {
			require.Equal(t, "1", v.Value)
		}
	}
}

// What another library's variable says and gccl does not understand is left out with a warning, since it was not said
// to gccl; the rest of it is taken.
func TestOthersVariables(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	cfg, _, err := readSettings(env(map[string]string{"NCCL_ALGO": "NVLSTree", "NCCL_NCHANNELS": "4", "NCCL_MAX_NCHANNELS": "0", "GLOO_SOCKET_IFNAME": "eth", "NCCL_IB_GID_INDEX": "3", "NCCL_IB_TC": "106"}))
	require.NoError(t, err)
	require.Empty(t, cfg.Algo)
	require.Equal(t, 4, cfg.Channels)
	require.Equal(t, "eth", cfg.Bootstrap.Interface)
	require.Equal(t, 3, *cfg.IBGIDIndex)
	require.Equal(t, 106, cfg.IBTrafficClass)
	cfg.Logger = zap.New(core)
	require.NoError(t, cfg.warn(env(nil)))
	require.Equal(t, 1, logs.Len())
	require.Contains(t, logs.All()[0].Message, `NCCL_ALGO="NVLSTree" is ignored, for gccl has no such value of GCCL_ALGO`)
	require.Contains(t, logs.All()[0].Message, `NCCL_MAX_NCHANNELS="0" is ignored`)

	cfg, err = ConfigFromEnv(env(map[string]string{"GLOO_SOCKET_IFNAME": "eth", "GCCL_DEBUG": "silent"}))
	require.NoError(t, err)
	require.Equal(t, "eth", cfg.Bootstrap.Interface)
}

// Where no record can be written, that is said at the start.
func TestDumpDirectoryIsTried(t *testing.T) {
	for dir, warnings := range map[string]int{t.TempDir(): 0, filepath.Join(t.TempDir(), "none"): 2} {
		core, logs := observer.New(zap.WarnLevel)
		comms, err := NewLocal(context.Background(), 2, Config{DumpDir: dir, Logger: zap.New(core)})
		require.NoError(t, err)
		require.Equal(t, warnings, logs.FilterMessageSnippet("GCCL_DUMP_DIR").Len())
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		require.Empty(t, files)
		for _, c := range comms {
			require.NoError(t, c.Close())
		}
	}
}

// A file system that does not answer holds nobody up.
func TestDumpDirectoryIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		c := &Comm{cfg: Config{DumpDir: "/mnt/gone"}, log: zap.New(core)}
		answer := make(chan error)
		c.checkDumpDir(func(string) error { return <-answer })
		require.Equal(t, 1, logs.FilterMessageSnippet("GCCL_DUMP_DIR").Len())
		answer <- nil
	})
}

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

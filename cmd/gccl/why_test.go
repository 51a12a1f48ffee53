package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/recorder"
	"github.com/stretchr/testify/require"
)

func TestWhy(t *testing.T) {
	dir := t.TempDir()
	d := recorder.Dump{Version: recorder.Version, Epoch: "00000000000000ab", Rank: 1, Size: 2, Pid: 7, Host: "h", At: time.Unix(5, 0)}
	b, err := d.Encode()
	require.NoError(t, err)
	name := filepath.Join(dir, "gccl-00000000000000ab-rank1.json")
	require.NoError(t, os.WriteFile(name, b, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gccl-00000000000000ab-rank0.json"), []byte("{"), 0o600))
	for _, arg := range []string{dir, name} {
		var out, warn bytes.Buffer
		require.NoError(t, why(&out, &warn, []string{arg}))
		require.Equal(t, "communicator 00000000000000ab of 2 ranks\nrank 0 is absent: it left no dump\n  rank 0: no dump\n  rank 1 (pid 7 on h): no call yet\n", out.String())
		if arg == dir {
			require.Contains(t, warn.String(), "rank0.json: not a dump")
		}
	}
	require.ErrorContains(t, why(&bytes.Buffer{}, &bytes.Buffer{}, []string{t.TempDir()}), "no flight records")
	require.Error(t, why(&bytes.Buffer{}, &bytes.Buffer{}, []string{filepath.Join(dir, "absent")}))
}
